//! Plans of a network with other settings, which a user asks for.

use super::step::PlacedStep;
use crate::Failure;
use crate::network::Network;
use crate::options::{Change, Settings};
use crate::plan::{PlannedProgram, step};
use crate::values::Batch;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Blueprint, Steps, Term, unchunkable};
use gpumem_core::program::loss::Chunks;
use gpumem_core::report::{Device, Written};
use gpumem_core::train::optim::whole_states;
use gpumem_core::train::{Checkpoint, Offload, Update};

/// A program of a network, with the settings with which it is planned.
#[derive(Clone)]
pub struct Variant {
    pub network: Network,
    pub written: Written,
    pub is_training: bool,
    pub settings: Settings,
    /// The device that it is planned for. `None` if no card is named.
    pub device: Option<Device>,
}

impl Variant {
    /// Returns the variant for another device, instead of the cards in the source.
    pub fn on(mut self, device: Device) -> Variant {
        self.written.cards = device.aim();
        Variant { device: Some(device), ..self }
    }

    /// Plans it.
    pub fn plan(&self) -> Result<PlannedProgram, Failure> {
        step(&self.network, &self.written, self.is_training, &self.settings)
    }

    /// Returns a plan of it with a place for each tensor.
    pub fn placed(&self, program: &PlannedProgram) -> Result<PlacedStep, Failure> {
        let settings = if self.is_training { settings(&self.network.blueprint) } else { Vec::new() };
        PlacedStep::new(&self.network, program, self.device, settings.iter().map(ToString::to_string).collect())
    }

    /// Returns the variant with one more change. Fails if the network cannot have it.
    pub fn with(&self, change: Change) -> Result<Variant, String> {
        let mut other = self.clone();
        match change {
            Change::Batch(samples) => other.settings.batch = Some(Batch::Samples(samples)),
            Change::Precision(precision) => other.settings.precision = Some(precision),
            Change::Card(device) => other = other.on(device),
            _ if !self.is_training => {
                return Err(format!("`{change}` is a setting of training, and this is inference"));
            }
            Change::Checkpoint(checkpoint) => other.each_step(|steps, _| steps.checkpoint = checkpoint),
            Change::Update(update) => other.each_step(|steps, _| steps.update = update),
            Change::MicroBatches(parts) => {
                other.refuse_comparing(parts)?;
                other.each_step(|steps, _| steps.descent.micro_batches = parts);
            }
            Change::Offload(offload) => {
                other.refuse_states(offload)?;
                other.each_step(|steps, _| steps.descent.offload = offload);
            }
            Change::Chunks(count) => {
                let mut has_some = false;
                other.each_step(|steps, (graph, outputs)| has_some |= set_chunks(steps, graph, outputs, count));
                if !has_some {
                    return Err("`chunks` is for losses of classes whose logits a `Linear` makes at the end".into());
                }
            }
        }
        other.check_parts()?;
        Ok(other)
    }

    /// Returns samples in a step. `None` for a network that is generic over them.
    pub fn samples(&self) -> Option<u64> {
        self.settings.samples().or(self.written.batch)
    }

    /// Calls `change` with the settings of each training step, and with the graph and its outputs.
    fn each_step(&mut self, mut change: impl FnMut(&mut Steps, (&Graph, &[usize]))) {
        let Blueprint { graph, outputs, training, parts, .. } = &mut self.network.blueprint;
        let all = training.iter_mut().chain(parts.all.iter_mut().map(|part| &mut part.steps));
        all.for_each(|steps| change(steps, (graph, outputs)));
    }

    /// Fails unless all micro-batches have equally many samples.
    fn check_parts(&self) -> Result<(), String> {
        let descent = self.network.blueprint.training.as_ref().map(|steps| steps.descent).filter(|_| self.is_training);
        match (descent, self.samples()) {
            (Some(descent), Some(samples)) if !samples.is_multiple_of(descent.parts()) => {
                Err(format!("a batch of {samples} does not divide into {} equal micro-batches", descent.parts()))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the batch is split although a loss compares its samples.
    fn refuse_comparing(&self, parts: u64) -> Result<(), String> {
        let compares = self.network.blueprint.training.iter().flat_map(|steps| &steps.loss).any(Term::compares_samples);
        match parts > 1 && compares {
            true => Err("`micro_batches` would split a batch whose samples the loss compares".into()),
            false => Ok(()),
        }
    }

    /// Fails if optimizer state shall be in host memory, and the optimizer does not treat each element by itself.
    fn refuse_states(&self, offload: Offload) -> Result<(), String> {
        let is_whole = self.network.blueprint.training.iter().all(|steps| !whole_states(steps.moments).1);
        match matches!(offload, Offload::OptimizerState | Offload::All) && !is_whole {
            true => Err(format!("`offload={}` needs an optimizer that treats each element by itself", offload.name())),
            false => Ok(()),
        }
    }
}

/// Sets the chunks of each term that can have some. Returns true if there is such a term.
fn set_chunks(steps: &mut Steps, graph: &Graph, outputs: &[usize], count: u64) -> bool {
    let mut has_some = false;
    for index in 0..steps.loss.len() {
        let before = std::mem::replace(&mut steps.loss[index].options.chunks, Chunks::Count(count.max(2)));
        let can_have = unchunkable(graph, outputs, &steps.loss, index).is_none();
        steps.loss[index].options.chunks = if can_have { Chunks::Count(count) } else { before };
        has_some |= can_have;
    }
    has_some
}

/// Returns the settings of training that a blueprint has otherwise than by default.
fn settings(blueprint: &Blueprint) -> Vec<Change> {
    let Some(steps) = &blueprint.training else { return Vec::new() };
    let mut all = Vec::new();
    if steps.checkpoint != Checkpoint::default() {
        all.push(Change::Checkpoint(steps.checkpoint));
    }
    if steps.descent.offload != Offload::None {
        all.push(Change::Offload(steps.descent.offload));
    }
    if steps.update != Update::Fused {
        all.push(Change::Update(steps.update));
    }
    let chunks = steps.loss.iter().filter_map(|term| match term.options.chunks {
        Chunks::Count(count) if count > 1 => Some(count),
        _ => None,
    });
    all.extend(chunks.max().map(Change::Chunks));
    all
}
