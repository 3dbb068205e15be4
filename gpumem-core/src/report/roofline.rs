//! A lower bound on the time of a step, from the bytes and the products of its operations.
//!
//! An operation takes at least the time in which the card's memory moves all tensors that it reads and writes, each once, and at least the
//! time in which its arithmetic units multiply. The longer of the two is the bound. No kernel can be faster; a profile shows how much
//! slower the real one is. S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model", Communications of
//! the ACM 52 (2009).

use crate::cards::Card;
use crate::error::Error;
use crate::memory::place::{Placed, on_host, place};
use crate::network::Network;
use crate::number::{Format, Precision};
pub use crate::program::cost::flops;
use crate::program::fusion::made_beside;
use crate::program::{Action, Class, Leg, Op, Operand, Operation, Pass, Phase, Piece, Slot, TensorId};
use crate::report::text::bytes as bytes_text;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The kinds of work of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Products, convolutions and attention: work that tensor cores can do.
    Contraction,
    /// Norms, softmax and losses: sums over rows or channels.
    Normalisation,
    /// All other operations, which treat each element by itself.
    Elementwise,
}

impl Work {
    /// Every kind.
    pub const ALL: [Work; 3] = [Work::Contraction, Work::Normalisation, Work::Elementwise];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Work::Contraction => "tensor contraction",
            Work::Normalisation => "normalisation",
            Work::Elementwise => "element-wise",
        }
    }

    /// Returns the kind of work of an operation.
    pub fn of(operation: &Operation) -> Work {
        match &operation.action {
            Action::Run { op, .. } => match op {
                Op::Product(_)
                | Op::CodedProduct(_)
                | Op::MatMul(_)
                | Op::Convolution(_)
                | Op::Convolution3d(_)
                | Op::Attention(_)
                | Op::NormalizedConvolution(_)
                | Op::WholeRecurrence(_) => Work::Contraction,
                Op::Normalize(_) | Op::BatchNorm(_) | Op::InplaceNorm(_) | Op::Softmax(_) => Work::Normalisation,
                _ => Work::Elementwise,
            },
            Action::Loss(_) => Work::Normalisation,
            _ => Work::Elementwise,
        }
    }
}

/// Returns the bytes that an operation reads of a tensor. Of a table it reads only the rows that are looked up, and a chunk of a loss reads
/// only its part of the target.
fn read(placed: &Placed, operation: &Operation, id: TensorId) -> u64 {
    let bytes = placed.bytes[id as usize];
    let output = || operation.written(Slot::Output).map_or(bytes, |output| placed.bytes[output as usize]);
    match &operation.action {
        Action::Run { op: Op::Gather(_), pass: Pass::Forward | Pass::Again }
            if operation.read(Slot::Input(1)) == Some(id) =>
        {
            bytes.min(output())
        }
        Action::Run { op: Op::Slice(_), pass: Pass::Forward | Pass::Again | Pass::Chunk } => bytes.min(output()),
        Action::Run { op: Op::BatchNorm(norm), .. } if operation.read(Slot::Input(0)) == Some(id) => norm.share(bytes),
        Action::Loss(criterion) if criterion.is_part() && operation.read(Slot::Target) == Some(id) => {
            (u128::from(bytes) * u128::from(criterion.outer) / u128::from(criterion.whole.max(1))) as u64
        }
        _ => added(placed, operation, id).unwrap_or(bytes),
    }
}

/// Returns the bytes of a gradient that an operation changes if it adds to a part of it: the gradient of a slice, or of some rows of a
/// table. `None` for other operations.
fn added(placed: &Placed, operation: &Operation, id: TensorId) -> Option<u64> {
    let whole = match operation.action {
        Action::Run { op: Op::Slice(_), pass: Pass::Backward } => Slot::InputGradient(0),
        Action::Run { op: Op::Gather(_), pass: Pass::Backward } => Slot::InputGradient(1),
        _ => return None,
    };
    let is_sum = operation.accumulate && operation.written(whole) == Some(id);
    let part = operation.read(Slot::Gradient).filter(|_| is_sum)?;
    Some(placed.bytes[part as usize].min(placed.bytes[id as usize]))
}

/// Returns the bytes of each tensor that an operation reads, and of each that it writes. Every tensor counts once, with the f32 master
/// copies of updated parameters. Scratch memory is not counted.
pub fn traffic(placed: &Placed, operation: &Operation) -> [Vec<(TensorId, u64)>; 2] {
    if let Action::Fetch(piece) | Action::UpdatePiece(piece) | Action::Store(piece) | Action::AveragePiece(piece) =
        &operation.action
    {
        return [&operation.reads, &operation.writes].map(|operands| of_piece(placed, operation, piece, operands));
    }
    if let Action::Park(leg) = operation.action {
        // Of a copy, only the arena's side is in the card's memory; a wait moves nothing.
        let is_moved = |operand: &&Operand| {
            matches!(leg, Leg::Leave | Leg::Return) && placed.program.tensor(operand.tensor).class != Class::Host
        };
        let bytes = |operand: &Operand| (operand.tensor, placed.bytes[operand.tensor as usize]);
        return [&operation.reads, &operation.writes].map(|all| all.iter().filter(is_moved).map(bytes).collect());
    }
    let distinct = |operands: &[Operand]| {
        let mut tensors: Vec<TensorId> = Vec::new();
        for operand in operands.iter().filter(|operand| !operand.slot.is_scratch()) {
            if !tensors.contains(&operand.tensor) {
                tensors.push(operand.tensor);
            }
        }
        tensors
    };
    let mut reads: Vec<(TensorId, u64)> =
        distinct(&operation.reads).into_iter().map(|id| (id, read(placed, operation, id))).collect();
    let mut writes: Vec<(TensorId, u64)> = distinct(&operation.writes)
        .into_iter()
        .map(|id| (id, added(placed, operation, id).unwrap_or(placed.bytes[id as usize])))
        .collect();
    if operation.action == Action::Update
        && let Some(parameter) = operation.written(Slot::Parameter)
        && placed.masters[parameter as usize].is_some()
    {
        let master = placed.program.tensor(parameter).elements(1).unwrap_or(0).saturating_mul(4);
        // The master copy is read rather than the parameter.
        reads.iter_mut().filter(|(id, _)| *id == parameter).for_each(|(_, bytes)| *bytes = master);
        writes.push((parameter, master));
    }
    [reads, writes]
}

/// Returns the bytes that an operation on a piece of a parameter moves in the card's memory. Tensors in host memory do not count.
fn of_piece(placed: &Placed, operation: &Operation, piece: &Piece, operands: &[Operand]) -> Vec<(TensorId, u64)> {
    let is_moved = |operand: &&Operand| {
        let is_name = operand.slot == Slot::Parameter && !operation.action.is_update();
        !is_name && on_host(placed.offsets[operand.tensor as usize]).is_none()
    };
    let bytes = |operand: &Operand| {
        let (tensor, all) = (placed.program.tensor(operand.tensor), placed.bytes[operand.tensor as usize]);
        let each = all / tensor.stored(1).unwrap_or(0).max(1);
        (operand.tensor, if operand.slot == Slot::State { all } else { each.saturating_mul(piece.count) })
    };
    operands.iter().filter(is_moved).map(bytes).collect()
}

/// The rates of a card, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bytes that its memory moves.
    pub bytes: f64,
    /// Floating-point operations of products and convolutions.
    pub flops: f64,
}

impl Rates {
    /// Returns the rates of a card at a precision. Tensor cores count if they have the format; for f32, if TensorFloat-32 is allowed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a card whose rates are not in the table.
    pub fn of(card: &Card, precision: Precision, tf32: bool) -> Result<Rates, Error> {
        let narrow = precision.narrow();
        let has_format = match narrow {
            Format::Bf16 => card.compute_capability >= (8, 0),
            Format::F16 => card.compute_capability >= (7, 0),
            Format::F32 | Format::U32 | Format::U8 => false,
        };
        // A TensorFloat-32 number is as wide as two of 16 bits, so the rate is half.
        let in_tf32 = narrow == Format::F32 && tf32 && card.compute_capability >= (8, 0);
        let tensor = card.tensor_fp16_tflops.map(|rate| if in_tf32 { rate / 2.0 } else { rate });
        let flops = tensor.filter(|_| has_format || in_tf32).or(card.fp32_tflops);
        match (card.bandwidth_gbs, flops) {
            (Some(bandwidth), Some(flops)) => Ok(Rates { bytes: bandwidth * 1e9, flops: flops * 1e12 }),
            _ => Err(Error::Unsupported {
                device: card.short_name,
                what: "the table of cards has no bandwidth or no rate of it; choose another card".into(),
            }),
        }
    }

    /// Returns the least time for so many bytes and operations, in milliseconds.
    pub fn ms(&self, bytes: u64, flops: u64) -> f64 {
        (bytes as f64 / self.bytes).max(flops as f64 / self.flops) * 1e3
    }
}

/// The work of one kind of a layer in one phase of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Spent {
    /// The layer's number; `None` for operations that belong to none, such as the loss.
    pub layer: Option<usize>,
    /// The phase of the step.
    pub phase: Phase,
    /// The kind of work.
    pub work: Work,
    /// The bytes that are read and written.
    pub bytes: u64,
    /// The floating-point operations of products and convolutions.
    pub flops: u64,
    /// The least time of its operations, in milliseconds.
    pub ms: f64,
    /// True if memory takes longer than arithmetic.
    pub memory_bound: bool,
}

impl Spent {
    /// Returns the floating-point operations for each byte that is moved.
    pub fn intensity(&self) -> f64 {
        self.flops as f64 / self.bytes.max(1) as f64
    }
}

/// The least time of a network's step on a card: [`roofline`].
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// The card.
    pub card: &'static str,
    /// The network.
    pub name: &'static str,
    /// Samples in a step.
    pub batch: u64,
    /// The card's rates.
    pub rates: Rates,
    /// Layers, phases and kinds of work, in the order in which they run.
    pub spent: Vec<Spent>,
    paths: Vec<&'static str>,
}

/// Returns the bytes that operation number `at` moves. If a norm's output is recomputed by the operation of its gradient, only its write
/// counts.
pub fn moved(placed: &Placed, at: usize) -> u64 {
    let operations = &placed.program.operations;
    let [reads, writes] = traffic(placed, &operations[at]);
    let sum = |all: &[(TensorId, u64)]| all.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
    match made_beside(operations, at) {
        Some(is_read) => sum(&writes) * u64::from(is_read),
        None => sum(&reads).saturating_add(sum(&writes)),
    }
}

/// Returns the least time of each layer on a card, in the training step or else in the forward pass.
///
/// # Errors
/// A card whose bandwidth or rates are not in the table.
pub fn roofline<N: Network>(card: &Card) -> Result<Roofline, Error> {
    let placed = place(N::PROGRAM)?;
    let tf32 = N::TRAINED.is_some_and(|train| train.tf32);
    let rates = Rates::of(card, N::PROGRAM.precision, tf32)?;
    let micro_batches = N::PROGRAM.tables.micro_batches;
    // A rank multiplies its own samples alone.
    let own = N::PROGRAM.samples().saturating_mul(micro_batches);
    let spent = spent(&placed, micro_batches, own, N::LAYERS.len(), &rates);
    let paths = N::LAYERS.iter().map(|layer| layer.path).collect();
    Ok(Roofline { card: card.short_name, name: N::NAME, batch: N::PROGRAM.batch, rates, spent, paths })
}

/// Returns the work of a program at a card's rates: of `layers` layers, by phase and kind, in the order in which they run. `batch` is the number
/// of samples in all micro-batches of a rank.
pub(super) fn spent(placed: &Placed, micro_batches: u64, batch: u64, layers: usize, rates: &Rates) -> Vec<Spent> {
    let mut spent: Vec<Spent> = Vec::new();
    let repeated = placed.program.repeated();
    for (at, operation) in placed.program.operations.iter().enumerate() {
        // Once for each micro-batch.
        let bytes = moved(placed, at).saturating_mul(if at < repeated { micro_batches } else { 1 });
        let flops = flops(operation, batch);
        let (layer, phase, work) = (operation.row as usize, operation.phase(), Work::of(operation));
        let layer = Some(layer).filter(|&layer| layer < layers);
        let ms = rates.ms(bytes, flops);
        let memory_bound = bytes as f64 / rates.bytes >= flops as f64 / rates.flops;
        match spent.last_mut().filter(|last| (last.layer, last.phase, last.work) == (layer, phase, work)) {
            Some(last) => {
                last.memory_bound = if ms > last.ms { memory_bound } else { last.memory_bound };
                last.bytes = last.bytes.saturating_add(bytes);
                last.flops = last.flops.saturating_add(flops);
                last.ms += ms;
            }
            None => spent.push(Spent { layer, phase, work, bytes, flops, ms, memory_bound }),
        }
    }
    spent
}

impl Roofline {
    /// Returns the least time of the step, in milliseconds.
    pub fn ms(&self) -> f64 {
        self.spent.iter().map(|spent| spent.ms).sum()
    }

    /// Returns the least time of one kind of work, in milliseconds.
    pub fn ms_of(&self, work: Work) -> f64 {
        self.spent.iter().filter(|spent| spent.work == work).map(|spent| spent.ms).sum()
    }
}

/// A table: the kinds of work, then every layer with its phases, largest first.
impl fmt::Display for Roofline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.ms();
        writeln!(f, "{} on {}: at least {total:.2} ms for a step of {}", self.name, self.card, self.batch)?;
        for work in Work::ALL {
            let of = |value: fn(&Spent) -> u64| -> u64 {
                self.spent.iter().filter(|spent| spent.work == work).map(value).fold(0, u64::saturating_add)
            };
            let (ms, moved, flops) = (self.ms_of(work), of(|spent| spent.bytes), of(|spent| spent.flops));
            let share = 100.0 * ms / total.max(f64::MIN_POSITIVE);
            writeln!(
                f,
                "  {:<20}{ms:>9.3} ms  {share:>5.1} %  {:>11}  {:>9.3} TFLOP",
                work.name(),
                bytes_text(moved),
                flops as f64 * 1e-12
            )?;
        }
        let mut rows: Vec<&Spent> = self.spent.iter().collect();
        rows.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        for spent in rows {
            let layer: String = match spent.layer {
                Some(layer) => format!("{}{}", Phase::describe(spent.phase as u8), self.paths[layer]),
                None if spent.phase == Phase::Loss => "loss".into(),
                None => Phase::describe(spent.phase as u8).into(),
            };
            let bound = if spent.memory_bound { "memory" } else { "compute" };
            writeln!(
                f,
                "  {:<44}{:>9.3} ms  {:>11}  {:>8.1} FLOP/byte  {bound}",
                layer.trim_end(),
                spent.ms,
                bytes_text(spent.bytes),
                spent.intensity()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::{GTX_1080_TI, H200, RTX_3060, T4};

    #[test]
    fn rates_are_those_of_the_format() {
        let flops = |card: &Card, precision, tf32| Rates::of(card, precision, tf32).unwrap().flops / 1e12;
        let (fp32, tensor) = (RTX_3060.fp32_tflops.unwrap(), RTX_3060.tensor_fp16_tflops.unwrap());
        assert_eq!(flops(&RTX_3060, Precision::F32, false), fp32);
        assert_eq!(flops(&RTX_3060, Precision::F32, true), tensor / 2.0);
        assert_eq!(flops(&RTX_3060, Precision::Mixed(Half::Bf16), false), tensor);
        // Turing's tensor cores have no bfloat16, and Pascal has no tensor cores.
        assert_eq!(flops(&T4, Precision::Bf16, false), T4.fp32_tflops.unwrap());
        assert_eq!(flops(&T4, Precision::F16, false), T4.tensor_fp16_tflops.unwrap());
        assert_eq!(flops(&GTX_1080_TI, Precision::F16, true), GTX_1080_TI.fp32_tflops.unwrap());
        let unknown = Card { bandwidth_gbs: None, ..H200 };
        let error = Rates::of(&unknown, Precision::F32, false).unwrap_err().to_string();
        assert_eq!(error, "H200: the table of cards has no bandwidth or no rate of it; choose another card");
    }

    #[test]
    fn the_longer_of_two_times_counts() {
        let rates = Rates { bytes: 1e9, flops: 1e12 };
        assert_eq!(rates.ms(1_000_000, 1_000_000), 1.0);
        assert_eq!(rates.ms(1_000_000, 2_000_000_000), 2.0);
    }

    use crate::number::Half;
    use alloc::string::ToString;
}
