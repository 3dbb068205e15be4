//! Bytes and costs of a step.

use super::emit::{Emission, Held, StepEffects, live};
use super::parking::Parking;
use super::values::{Place, reads_saved};
use crate::lower::draft::Draft;
use crate::lower::sizes::{MOST, Sizes};
use crate::memory::plan::ALIGNMENT;
use crate::program::cost::flops;
use crate::program::fusion::made_beside;
use crate::program::{Action, Op, Operand, Operation, Pass, Phase, Program, Slot, Tensor};
use alloc::vec::Vec;

/// The cost of a recomputation that is ruled out.
pub(in crate::lower) const NEVER: u64 = u64::MAX;

/// The sizes of a step in bytes, and its costs in floating-point operations that take as long.
#[derive(Clone, Debug, Default)]
pub(in crate::lower) struct StepBytes {
    /// Padded bytes of values. `owns` has those of tensors first written after the forward pass, and `scratch` those of each forward operation's
    /// scratch memory.
    pub(in crate::lower) values: Vec<u64>,
    pub(in crate::lower) owns: Vec<u64>,
    pub(in crate::lower) scratch: Vec<u64>,
    /// The cost of running each forward operation again; [`NEVER`] if that is ruled out.
    pub(in crate::lower) costs: Vec<u64>,
    /// The costs of the whole step and of its forward pass.
    pub(in crate::lower) step: u64,
    pub(in crate::lower) forward: u64,
    /// The values that can be in host memory; `None` if all tensors stay in the arena.
    pub(in crate::lower) parking: Option<Parking>,
}

impl StepBytes {
    /// Returns the sizes of a step; `None` if it is too large for any plan.
    pub(in crate::lower) fn of(draft: &Draft, step: &StepEffects, setting: &Sizes) -> Option<StepBytes> {
        let exact: Option<Vec<u64>> = draft.tensors.iter().map(|tensor| setting.bytes(tensor)).collect();
        let exact = exact?;
        let padded = |tensor: u32| exact[tensor as usize].next_multiple_of(ALIGNMENT);
        let values = &step.values;
        let meter = Meter { tensors: &draft.tensors, exact: &exact, setting };
        let mut sizes = StepBytes {
            values: values.values.iter().map(|value| padded(value.tensor)).collect(),
            owns: values.owns.iter().map(|own| padded(own.tensor)).collect(),
            ..StepBytes::default()
        };
        for (at, operation) in draft.operations.iter().enumerate() {
            let cost = meter.cost(operation);
            sizes.step = sizes.step.saturating_add(cost);
            if at < values.forward {
                sizes.step = sizes.step.saturating_add(meter.statistics(operation));
                sizes.forward = sizes.forward.saturating_add(cost);
                sizes.scratch.push(operation.written(Slot::Workspace).map_or(0, padded));
                let is_left = setting.only_cheap && macs(operation) > 0;
                sizes.costs.push(if is_left { NEVER } else { cost });
            }
        }
        let all = sizes.values.iter().chain(&sizes.owns).chain(&sizes.scratch);
        all.copied().try_fold(0, u64::checked_add).filter(|&all| all < MOST).map(|_| sizes)
    }

    /// Returns the bytes of a piece of memory.
    pub(in crate::lower) fn bytes(&self, held: Held) -> u64 {
        match held {
            Held::Value(value) => self.values[value as usize],
            Held::Own(own) => self.owns[own as usize],
            Held::Scratch(at) => self.scratch[at as usize],
            Held::Nothing => 0,
        }
    }

    /// Returns the peak of an order, in bytes. Values that can be in host memory in between are.
    pub(in crate::lower) fn peak(&self, emission: &Emission<'_>) -> u64 {
        let whole = self.whole_peak(emission);
        self.parking
            .as_ref()
            .map_or(whole, |parking| parking.peak(emission, whole, &self.values, |held| self.bytes(held)).min(whole))
    }

    /// Returns the peak of an order all of whose tensors stay in the arena, in bytes.
    pub(in crate::lower) fn whole_peak(&self, emission: &Emission<'_>) -> u64 {
        live(emission, |held| self.bytes(held)).into_iter().max().unwrap_or(0) as u64
    }

    /// Returns the cost of an order beyond one run of each operation.
    pub(in crate::lower) fn cost(&self, order: &[u32]) -> u64 {
        let again = again(order, self.costs.len());
        again.map(|at| self.costs[at]).fold(0, u64::saturating_add)
    }
}

/// Returns the forward operations of an order that run again, once for each time.
pub(in crate::lower) fn again(order: &[u32], forward: usize) -> impl Iterator<Item = usize> + '_ {
    order[forward.min(order.len())..].iter().map(|&at| at as usize).filter(move |&at| at < forward)
}

/// The measurement of single operations.
struct Meter<'d> {
    tensors: &'d [Tensor],
    /// Bytes of each tensor.
    exact: &'d [u64],
    setting: &'d Sizes,
}

impl Meter<'_> {
    /// Returns the bytes that an operation reads of a tensor: of a table only the rows that it looks up.
    fn read(&self, operation: &Operation, operand: &Operand) -> u64 {
        let bytes = self.exact[operand.tensor as usize];
        let output = || operation.written(Slot::Output).map_or(bytes, |output| self.exact[output as usize]);
        match &operation.action {
            Action::Run { op: Op::Gather(_), pass: Pass::Forward } if operand.slot == Slot::Input(1) => {
                bytes.min(output())
            }
            Action::Run { op: Op::Slice(_), pass: Pass::Forward | Pass::Again | Pass::Chunk } => bytes.min(output()),
            Action::Run { op: Op::BatchNorm(norm), .. } if operand.slot == Slot::Input(0) => norm.share(bytes),
            _ => bytes,
        }
    }

    /// Returns the bytes that an operation moves. It reads and writes each tensor once; scratch memory is not counted.
    fn moved(&self, operation: &Operation) -> u64 {
        let once = |operands: &[Operand], index: usize| {
            let operand = &operands[index];
            let is_known = operands[..index].iter().any(|other| other.tensor == operand.tensor);
            !operand.slot.is_scratch() && !is_known
        };
        let reads = (0..operation.reads.len()).filter(|&index| once(&operation.reads, index));
        let reads = reads.map(|index| self.read(operation, &operation.reads[index]));
        let writes = (0..operation.writes.len()).filter(|&index| once(&operation.writes, index));
        let writes = writes.map(|index| self.exact[operation.writes[index].tensor as usize]);
        reads.chain(writes).fold(0, u64::saturating_add)
    }

    /// Returns the cost of an operation: the longer of two times, for arithmetic and for memory traffic. A forward operation costs as much when
    /// it runs again.
    fn cost(&self, operation: &Operation) -> u64 {
        let output = operation.written(Slot::Output);
        let is_batched = output.is_none_or(|output| self.tensors[output as usize].batched);
        let batch = if is_batched { self.setting.batch } else { 1 };
        flops(operation, batch).max(self.moved(operation).saturating_mul(self.setting.flops_per_byte()))
    }

    /// Returns what a forward operation costs in addition when it runs for the first time. If it reads saved statistics when it runs again, it
    /// has passed over its input once more to compute them.
    fn statistics(&self, operation: &Operation) -> u64 {
        let input = operation.read(Slot::Input(0)).filter(|_| reads_saved(operation));
        input.map_or(0, |input| self.exact[input as usize].saturating_mul(self.setting.flops_per_byte()))
    }
}

/// Returns the cost of each operation, and of moving each tensor once in the memory of a card. `None` if they are too large for any plan.
pub(in crate::lower) fn costs(
    operations: &[Operation],
    tensors: &[Tensor],
    setting: &Sizes,
) -> Option<(Vec<u64>, Vec<u64>)> {
    let exact: Vec<u64> = tensors.iter().map(|tensor| setting.bytes(tensor)).collect::<Option<_>>()?;
    let meter = Meter { tensors, exact: &exact, setting };
    let all = operations.iter().map(|operation| meter.cost(operation)).collect();
    Some((all, exact.iter().map(|bytes| bytes.saturating_mul(setting.flops_per_byte())).collect()))
}

/// Returns the time of a step with its recomputations, in floating-point operations that take as long. 0 if it is too large for any plan.
pub(in crate::lower) fn step_time(program: &Program, sizes: &Sizes) -> u64 {
    let setting = &sizes.of_part(program.descent.parts());
    let tensors = &*program.tensors;
    let Some(exact) = tensors.iter().map(|tensor| setting.bytes(tensor)).collect::<Option<Vec<u64>>>() else {
        return 0;
    };
    let meter = Meter { tensors, exact: &exact, setting };
    let once = program.operations.iter().map(|operation| match operation.phase() {
        Phase::Again => 0,
        Phase::Forward => meter.cost(operation).saturating_add(meter.statistics(operation)),
        _ => meter.cost(operation),
    });
    once.fold(time_again(program, sizes), u64::saturating_add)
}

/// Returns the time of recomputations in a step, in floating-point operations that take as long.
pub(in crate::lower) fn time_again(program: &Program, sizes: &Sizes) -> u64 {
    let sizes = sizes.of_part(program.descent.parts());
    let Some((costs, moves)) = costs(&program.operations, &program.tensors, &sizes) else { return 0 };
    let of = |(at, operation): (usize, &Operation)| match made_beside(&program.operations, at) {
        _ if operation.phase() != Phase::Again => 0,
        Some(true) => operation.written(Slot::Output).map_or(0, |output| moves[output as usize]),
        Some(false) => 0,
        None => costs[at],
    };
    program.operations.iter().enumerate().map(of).fold(0, u64::saturating_add)
}

/// Returns the multiply-accumulates of an operation's forward pass, for one sample.
pub(in crate::lower) fn macs(operation: &Operation) -> u64 {
    match &operation.action {
        Action::Run { op, .. } => op.macs(),
        _ => 0,
    }
}

/// Returns the bytes that an order moves again: those independent of the batch, and those of each sample.
pub(in crate::lower) fn moved_again(draft: &Draft, step: &StepEffects, order: &[u32], setting: &Sizes) -> [u64; 2] {
    let mut moved = [0u64; 2];
    for at in again(order, step.values.forward) {
        let operation = &draft.operations[at];
        let places = step.values.reads[at].iter().zip(&operation.reads);
        let written = step.values.writes[at].iter().zip(&operation.writes);
        for (place, operand) in places.chain(written) {
            if *place == Place::Scratch || matches!(operand.slot, Slot::Buffer(_)) {
                continue;
            }
            let tensor = &draft.tensors[operand.tensor as usize];
            let bytes = setting.bytes(&Tensor { batched: false, ..tensor.clone() }).unwrap_or(0);
            let sum = &mut moved[usize::from(tensor.batched)];
            *sum = sum.saturating_add(bytes);
        }
    }
    moved
}
