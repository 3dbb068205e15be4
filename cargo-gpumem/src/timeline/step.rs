//! A planned step as a picture needs it: operations, and tensors with their live ranges and offsets.

use super::category::{Category, Stretch, of_tensor};
use crate::Failure;
use crate::network::Network;
use crate::plan::PlannedProgram;
use crate::text::bytes;
use gpumem_core::graph::SourceLines;
use gpumem_core::memory::budget::{Budget, padded};
use gpumem_core::memory::place::{Placed, on_host};
use gpumem_core::program::{Action, Class, Leg, Operand, Operation, Part, Tensor, TensorId};
use gpumem_core::report::Device;
use gpumem_core::report::roofline::{Rates, flops, moved};
use std::collections::HashMap;

/// A step with a place for each tensor.
pub struct PlacedStep {
    /// The network's name, and its title in reports.
    pub network: String,
    pub title: String,
    pub is_training: bool,
    pub batch: u64,
    /// Samples that are in memory at once.
    pub samples: u64,
    pub micro_batches: u64,
    pub ranks: u64,
    pub precision: &'static str,
    /// Settings of `TRAIN` that change memory, as they are written there. Empty for those at their defaults.
    pub settings: Vec<String>,
    /// The card that the step is compared with, and the bytes of it that stay free. `None` if none is named.
    pub card: Option<(Device, u64)>,
    /// The budget, with the reserve of the card.
    pub budget: Budget,
    pub operations: Vec<TimedOperation>,
    /// The number of operations that run once for each micro-batch. 0 without micro-batches.
    pub repeated: usize,
    pub layers: Vec<Layer>,
    pub lines: SourceLines,
    pub tensors: Vec<Live>,
    /// The lives of each tensor that goes to host memory and back: before, in host memory, and after. They are indices of `tensors`.
    pub parked: Vec<[usize; 3]>,
}

/// A layer: its path and its name in the language.
pub struct Layer {
    pub path: String,
    pub kind: String,
}

/// An operation.
pub struct TimedOperation {
    /// The name without the layer's path: `Convolution backward`.
    pub verb: String,
    /// The index of its layer. `None` for operations of no layer, such as the loss.
    pub layer: Option<usize>,
    pub stretch: Stretch,
    /// Microseconds that the card needs at least. 0 if its rates are unknown.
    pub least_us: f64,
}

/// A tensor with its live range and its offset.
pub struct Live {
    /// The whole name, as in other reports.
    pub name: String,
    pub role: TensorPart,
    pub category: Category,
    pub layer: Option<usize>,
    pub shape: String,
    /// Bytes without padding.
    pub bytes: u64,
    /// Byte offset in the arena, or in host memory.
    pub offset: u64,
    /// The first and the last operation at which it is live.
    pub first: usize,
    pub last: usize,
    /// The operations that use it, in order, each with 1 for a read, 2 for a write, and 3 for both.
    pub uses: Vec<(usize, u8)>,
}

/// The part of its layer that a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorPart {
    Part(Part),
    MasterCopy,
    /// The half of the batch that is filled while the other is read.
    NextBatch,
}

impl TensorPart {
    /// The number of roles.
    pub const COUNT: usize = 8;

    /// Returns the name after that of a layer or a tensor, by [`TensorPart::number`].
    pub fn name(number: usize) -> &'static str {
        match number {
            6 => "master copy",
            7 => "next batch",
            part => Part::describe(part as u8).trim_start(),
        }
    }

    /// Returns the number in the data of a page.
    pub fn number(self) -> usize {
        match self {
            TensorPart::Part(part) => part as usize,
            TensorPart::MasterCopy => 6,
            TensorPart::NextBatch => 7,
        }
    }
}

impl Live {
    /// Returns the bytes that it takes, with padding.
    pub fn room(&self) -> u64 {
        padded(self.bytes)
    }
}

impl PlacedStep {
    /// Returns the step of a program that is planned for its cards, or without any for the device.
    pub fn new(
        network: &Network,
        program: &PlannedProgram,
        device: Option<Device>,
        settings: Vec<String>,
    ) -> Result<PlacedStep, Failure> {
        let plan = &program.plan;
        let placed = plan.placed_within(&plan.cards, device, plan.headroom);
        let (placed, budget) = placed.map_err(|error| format!("`{}`: {error}", program.title))?;
        let ranks = plan.ranks();
        let budget = budget
            .with_reserve(device.map_or(0, Device::reserve))
            .with_communication(device.map_or(0, |device| device.communication(ranks)));
        let layers = plan.layers.iter().map(|layer| Layer { path: layer.path.clone(), kind: layer.kind.clone() });
        let micro_batches = placed.program.descent.micro_batches;
        Ok(PlacedStep {
            network: network.name.clone(),
            title: program.title.clone(),
            is_training: plan.training,
            batch: plan.batch,
            samples: plan.samples(),
            micro_batches,
            ranks: ranks.count,
            precision: plan.precision.name(),
            settings,
            card: device.map(|device| (device, plan.headroom)),
            budget,
            operations: operations(&placed, program, device),
            repeated: if micro_batches > 1 { placed.program.repeated() } else { 0 },
            layers: layers.collect(),
            lines: network.blueprint.graph.lines.clone(),
            tensors: tensors(&placed),
            parked: parked(&placed),
        })
    }

    /// Returns the name of the card, or `card of 11.50 GiB` for a size. `None` if no card is named.
    pub fn card_name(&self) -> Option<String> {
        let (device, _) = self.card?;
        Some(match device {
            Device::Known(card) => card.short_name.to_string(),
            Device::Size(size) => format!("card of {}", bytes(size)),
        })
    }

    /// Returns the index of the first operation of the loss. The number of operations in a forward pass.
    pub fn loss(&self) -> usize {
        first_of_loss(self.operations.iter().map(|operation| operation.stretch))
    }

    /// Returns microseconds that a step needs at least, with all micro-batches. 0 if the card's rates are unknown.
    pub fn least_us(&self) -> f64 {
        let times = |index: usize| if index < self.repeated { self.micro_batches as f64 } else { 1.0 };
        self.operations.iter().enumerate().map(|(index, operation)| operation.least_us * times(index)).sum()
    }

    /// Returns the path of a layer; `network` without a layer.
    pub fn path(&self, layer: Option<usize>) -> &str {
        layer.and_then(|layer| self.layers.get(layer)).map_or("network", |layer| &layer.path)
    }

    /// Returns the name of an operation, with the path of its layer.
    pub fn operation_name(&self, operation: &TimedOperation) -> String {
        match operation.layer {
            Some(_) => format!("{} {}", self.path(operation.layer), operation.verb),
            None => operation.verb.clone(),
        }
    }

    /// Returns the place in the source of a tensor's layer, as `src/net.rs:12`. Empty if it is unknown.
    pub fn source(&self, layer: Option<usize>) -> String {
        let place = layer.and_then(|layer| self.lines.of_row(layer).next());
        place.map(|(file, line)| format!("{file}:{line}")).unwrap_or_default()
    }
}

fn first_of_loss(stretches: impl ExactSizeIterator<Item = Stretch> + Clone) -> usize {
    let count = stretches.len();
    stretches.into_iter().position(|stretch| stretch == Stretch::Loss).unwrap_or(count)
}

fn stretch(operation: &Operation) -> Stretch {
    match operation.action {
        Action::Park(Leg::Leave | Leg::Left) | Action::Store(_) => Stretch::ToHost,
        Action::Park(Leg::Return | Leg::Returned) | Action::Fetch(_) => Stretch::FromHost,
        Action::Exchange(_) | Action::EndExchange(_) => Stretch::Exchange,
        _ => operation.phase().into(),
    }
}

/// Returns the layer of a row; `None` for rows of no layer.
fn layer(placed: &Placed, row: u32) -> Option<usize> {
    Some(row as usize).filter(|&row| row < placed.program.paths.len())
}

fn operations(placed: &Placed, program: &PlannedProgram, device: Option<Device>) -> Vec<TimedOperation> {
    let rates = match device {
        Some(Device::Known(card)) => Rates::of(card, program.plan.precision, false).ok(),
        Some(Device::Size(_)) | None => None,
    };
    let samples = program.plan.samples();
    let operation = |(index, operation): (usize, &Operation)| {
        let name = placed.program.operation_name(operation);
        let layer = layer(placed, operation.row);
        let path = layer.and_then(|layer| placed.program.paths.get(layer));
        let verb = path.and_then(|path| name.strip_prefix(path.as_str())).unwrap_or(&name).trim_start().to_string();
        let least_us = rates.map_or(0.0, |rates| rates.ms(moved(placed, index), flops(operation, samples)) * 1e3);
        TimedOperation { verb, layer, stretch: stretch(operation), least_us }
    };
    placed.program.operations.iter().enumerate().map(operation).collect()
}

/// Returns the uses of each tensor.
fn uses(placed: &Placed) -> Vec<Vec<(usize, u8)>> {
    let mut uses: Vec<Vec<(usize, u8)>> = vec![Vec::new(); placed.program.tensors.len()];
    let mut add = |index: usize, operands: &[Operand], bit: u8| {
        for operand in operands {
            let all = &mut uses[operand.tensor as usize];
            match all.last_mut() {
                Some((last, bits)) if *last == index => *bits |= bit,
                _ => all.push((index, bit)),
            }
        }
    };
    for (index, operation) in placed.program.operations.iter().enumerate() {
        add(index, &operation.reads, 1);
        add(index, &operation.writes, 2);
    }
    uses
}

/// Returns the tensors before, during and after each stay in host memory.
fn parked(placed: &Placed) -> Vec<[usize; 3]> {
    let operands = |operation: &Operation| Some([operation.reads.first()?.tensor, operation.writes.first()?.tensor]);
    let copies = |leg: Leg| {
        let is_copy = move |operation: &&Operation| matches!(operation.action, Action::Park(own) if own == leg);
        placed.program.operations.iter().filter(is_copy).filter_map(operands)
    };
    let returned: HashMap<TensorId, TensorId> = copies(Leg::Return).map(|[host, after]| (host, after)).collect();
    let lives = copies(Leg::Leave).filter_map(|[before, host]| Some([before, host, *returned.get(&host)?]));
    lives.map(|lives| lives.map(|id| id as usize)).collect()
}

/// Returns all tensors, then master copies, then the second half of the batch.
fn tensors(placed: &Placed) -> Vec<Live> {
    let program = &placed.program;
    let stretches: Vec<Stretch> = program.operations.iter().map(stretch).collect();
    let loss = first_of_loss(stretches.iter().copied());
    let end = stretches.len().saturating_sub(1);
    let uses = uses(placed);
    let live = |(id, tensor): (usize, &Tensor)| {
        let host = on_host(placed.offsets[id]);
        let [first, last] = match tensor.class {
            Class::Transient => [tensor.first as usize, tensor.last as usize],
            Class::Host => [uses[id].first(), uses[id].last()].map(|at| at.map_or(end, |(at, _)| *at)),
            _ => [0, end],
        };
        Live {
            name: program.tensor_name(tensor),
            role: TensorPart::Part(tensor.part),
            category: of_tensor(tensor, host.is_some(), &stretches, loss),
            layer: layer(placed, tensor.row),
            shape: if tensor.batched { format!("B\u{d7}{}", tensor.shape) } else { tensor.shape.to_string() },
            bytes: placed.bytes[id],
            offset: host.unwrap_or(placed.offsets[id]),
            first,
            last,
            uses: uses[id].clone(),
        }
    };
    let mut all: Vec<Live> = program.tensors.iter().enumerate().map(live).collect();
    let masters: Vec<Live> = (0..all.len()).filter_map(|id| master(placed, &all[id], id)).collect();
    let next = next_batch(&all, program.training);
    all.extend(masters);
    all.extend(next);
    all
}

/// Returns the f32 master copy of a parameter; `None` if there is none.
fn master(placed: &Placed, parameter: &Live, id: usize) -> Option<Live> {
    let offset = placed.masters[id]?;
    let host = on_host(offset);
    let elements = placed.program.tensor(TensorId::try_from(id).ok()?).own_shard().unwrap_or(0);
    Some(Live {
        name: format!("{} {}", parameter.name, TensorPart::name(TensorPart::MasterCopy.number())),
        role: TensorPart::MasterCopy,
        category: if host.is_some() { Category::ParkedState } else { Category::Master },
        shape: parameter.shape.clone(),
        bytes: elements.saturating_mul(4),
        offset: host.unwrap_or(offset),
        // An update reads and writes it; other operations read the parameter.
        uses: parameter.uses.iter().copied().filter(|(_, bits)| bits & 2 != 0).collect(),
        ..*parameter
    })
}

/// Returns the half of the batch that is filled while a training step reads the other.
fn next_batch(all: &[Live], is_training: bool) -> Vec<Live> {
    let batch = || all.iter().filter(|tensor| is_training && tensor.category == Category::Batch);
    let half: u64 = batch().map(Live::room).sum();
    let next = batch().map(|tensor| Live {
        name: format!("{} {}", tensor.name, TensorPart::name(TensorPart::NextBatch.number())),
        role: TensorPart::NextBatch,
        shape: tensor.shape.clone(),
        offset: tensor.offset + half,
        uses: Vec::new(),
        ..*tensor
    });
    next.collect()
}
