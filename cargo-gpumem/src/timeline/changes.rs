//! Plans of a network with other settings: those that a user asks for, and alternatives that a page shows.

use super::step::PlacedStep;
use crate::Failure;
use crate::network::Network;
use crate::options::{Change, Settings};
use crate::plan::step;
use crate::values::Batch;
use gpumem_core::Precision;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Blueprint, Steps, Term, unchunkable};
use gpumem_core::program::loss::Chunks;
use gpumem_core::report::Written;
use gpumem_core::train::optim::whole_states;
use gpumem_core::train::{Checkpoint, Offload, Update};

/// A program of a network, with the settings with which it is planned.
#[derive(Clone)]
pub struct Variant {
    pub network: Network,
    pub written: Written,
    pub is_training: bool,
    pub settings: Settings,
}

impl Variant {
    /// Plans it.
    pub fn plan(&self) -> Result<PlacedStep, Failure> {
        let program = step(&self.network, &self.written, self.is_training, &self.settings)?;
        let settings = if self.is_training { settings(&self.network.blueprint) } else { Vec::new() };
        PlacedStep::new(&self.network, &program, settings.iter().map(ToString::to_string).collect())
    }

    /// Returns the variant with one more change. Fails if the network cannot have it.
    pub fn with(&self, change: Change) -> Result<Variant, String> {
        let mut other = self.clone();
        match change {
            Change::Batch(samples) => other.settings.batch = Some(Batch::Samples(samples)),
            Change::Precision(precision) => other.settings.precision = Some(precision),
            Change::Card(card) => other.written.cards = vec![card],
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

    pub fn precision(&self) -> Precision {
        self.settings.precision.unwrap_or(self.written.precision)
    }

    /// Returns the micro-batches of a step.
    pub fn micro_batches(&self) -> u64 {
        self.network.blueprint.training.as_ref().map_or(1, |steps| steps.descent.micro_batches)
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

/// Another program of a network, which was planned.
pub struct Alternative {
    pub change: Change,
    pub step: PlacedStep,
}

/// Plans the usual alternatives to a step, several at once. Those that the network cannot have, or that change nothing, are left out.
pub fn alternatives(variant: &Variant, written: &PlacedStep) -> Vec<Alternative> {
    let changes = usual(variant);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(changes.len().max(1));
    let next = std::sync::atomic::AtomicUsize::new(0);
    let plan = |change: Change| {
        let other = variant.with(change).ok()?;
        // The reason why an alternative has no plan is of no use here: it is none.
        let step = other.plan().ok()?;
        let differs = step.budget.lines != written.budget.lines || step.operations.len() != written.operations.len();
        differs.then_some(Alternative { change, step })
    };
    let work = || {
        let mut found = Vec::new();
        loop {
            let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(&change) = changes.get(index) else { return found };
            found.extend(plan(change).map(|alternative| (index, alternative)));
        }
    };
    let mut all = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect::<Vec<_>>()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, alternative)| alternative).collect()
}

/// Returns the changes that are tried, each alone.
fn usual(variant: &Variant) -> Vec<Change> {
    let samples = variant.samples().unwrap_or(1);
    let mut all = vec![Change::Batch(samples / 2), Change::Batch(samples.saturating_mul(2))];
    all.retain(|change| *change != Change::Batch(0));
    all.extend(Precision::ALL.into_iter().filter(|&it| it != variant.precision()).map(Change::Precision));
    let Some(steps) = variant.network.blueprint.training.as_ref().filter(|_| variant.is_training) else { return all };
    all.push(Change::MicroBatches(variant.micro_batches().saturating_mul(2)));
    let checkpoints = [Checkpoint::None, Checkpoint::Norms, Checkpoint::Cheap, Checkpoint::Budget(0.5)];
    all.extend(checkpoints.into_iter().filter(|&it| it != steps.checkpoint).map(Change::Checkpoint));
    let offloads = [Offload::OptimizerState, Offload::Activations];
    all.extend(offloads.into_iter().filter(|&it| it != steps.descent.offload).map(Change::Offload));
    all.push(Change::Chunks(8));
    all
}
