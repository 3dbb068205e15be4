//! Parked activations: in host memory between the forward pass, which computes them, and the backward pass, which reads them.
//!
//! Such a tensor has two live ranges in the arena: one until it has left, and one from where it begins to return. The bus takes time, one copy
//! after the other in each direction, while operations go on. So a model says how long each operation and each copy takes. A tensor stays in the
//! arena if it cannot leave before the forward pass is over, or would have to return so early that nothing is gained.
//!
//! The plan is valid even if the model is wrong: each copy begins at an operation and is waited for at another, and between the two the tensor
//! has its memory to itself. If a card is slower or a bus is faster than in the model, nothing waits; in the other case the step does.

use crate::lower::draft::Draft;
use crate::lower::liveness::most_of_sample;
use crate::lower::schedule::bus::{self, BUS, Clock, Gap, LEAST, RoundTrip, SAMPLES, Turn};
use crate::lower::schedule::recompute::costs;
use crate::lower::sizes::Sizes;
use crate::memory::tables::samples;
use crate::number::Role;
use crate::program::fusion::may_join;
use crate::program::{Action, Class, Leg, Operand, Operation, Part, Phase, Program, Slot, Tensor, TensorId};
use alloc::vec;
use alloc::vec::Vec;
use core::iter;

/// Returns the operations of the loss; `None` if there are none.
fn turn_of(operations: &[Operation]) -> Option<Turn> {
    let is_loss = |operation: &Operation| operation.phase() == Phase::Loss;
    let (first, last) = (operations.iter().position(is_loss)?, operations.iter().rposition(is_loss)?);
    Some(Turn { first, last })
}

/// Returns the tensors that the forward pass leaves for the backward pass, untouched in between. Those of `lasting` are left out.
fn gaps(operations: &[Operation], tensors: &[Tensor], turn: Turn, lasting: &[TensorId]) -> Vec<Gap> {
    let mut last: Vec<Option<usize>> = vec![None; tensors.len()];
    let mut is_apart = vec![true; tensors.len()];
    for (at, operation) in operations[..=turn.last].iter().enumerate() {
        for id in operation.tensors().map(|id| id as usize) {
            last[id] = Some(at);
            is_apart[id] &= at < turn.first;
        }
    }
    let mut next: Vec<Option<usize>> = vec![None; tensors.len()];
    for (at, operation) in operations.iter().enumerate().skip(turn.last + 1) {
        operation.tensors().for_each(|id| _ = next[id as usize].get_or_insert(at));
    }
    let gap = |id: usize| {
        let (tensor, Gap { tensor: number, last, next }) =
            (&tensors[id], Gap { tensor: id as TensorId, last: last[id]?, next: next[id]? });
        let is_kind = tensor.class == Class::Transient && tensor.role == Role::Activation && tensor.batched;
        // A tensor that is overwritten before it is read holds nothing.
        let is_read = operations[next].reads.iter().any(|operand| operand.tensor == number);
        let is_one = is_kind && tensor.part != Part::Workspace && is_apart[id] && is_read && !lasting.contains(&number);
        is_one.then_some(Gap { tensor: number, last, next })
    };
    (0..tensors.len()).filter_map(gap).collect()
}

/// Returns the times of operations and of copies; `None` if they are too large for any plan.
fn clock_of(operations: &[Operation], tensors: &[Tensor]) -> Option<Clock> {
    let (all, moves) = costs(operations, tensors, &bus::sizes())?;
    Some(Clock::new(all.into_iter(), moves.into_iter()))
}

/// A parked tensor, and the operations before which its copies begin and are waited for.
#[derive(Clone, Copy, Debug)]
struct Parked {
    gap: Gap,
    leave: usize,
    left: usize,
    returning: usize,
    returned: usize,
}

/// Returns the tensors that can leave and return in time.
fn chosen(gaps: Vec<Gap>, operations: &[Operation], clock: &Clock, turn: Turn) -> Vec<Parked> {
    let parked = |RoundTrip { gap, left, returning }: RoundTrip| Parked {
        gap,
        leave: later(operations, gap.last + 1, turn),
        left: later(operations, left, turn),
        returning: earlier(operations, returning, turn),
        returned: earlier(operations, gap.next, turn),
    };
    clock.round_trips(gaps, turn).into_iter().map(parked).collect()
}

/// Returns the first index from `at` on, before the turn, that is not between operations which may be fused.
fn later(operations: &[Operation], at: usize, turn: Turn) -> usize {
    (at..turn.first).find(|&at| !may_join(operations, at)).unwrap_or(turn.first)
}

/// Returns the last index up to `at`, after the turn, that is not between operations which may be fused.
fn earlier(operations: &[Operation], at: usize, turn: Turn) -> usize {
    (turn.last + 2..=at).rev().find(|&at| !may_join(operations, at)).unwrap_or(turn.last + 1)
}

/// Returns the step with these tensors parked in host memory.
fn with(draft: &Draft, all: &[Parked]) -> Draft {
    let mut parked = draft.clone();
    let Draft { operations, tensors, nodes, prefixes, .. } = &mut parked;
    // The copies and waits before each operation. A wait comes after its copy if both are at one place.
    let mut legs: Vec<Vec<Operation>> = vec![Vec::new(); operations.len()];
    for &Parked { gap: Gap { tensor, next, .. }, leave, left, returning, returned } in all {
        let original = tensors[tensor as usize].clone();
        let row = original.row;
        let host = tensors.len() as TensorId;
        tensors.extend([Tensor { class: Class::Host, ..original.clone() }, original]);
        let back = host + 1;
        for operation in &mut operations[next..] {
            let operands = operation.reads.iter_mut().chain(&mut operation.writes);
            operands.filter(|operand| operand.tensor == tensor).for_each(|operand| operand.tensor = back);
        }
        for (leg, from, to, at) in [
            (Leg::Leave, tensor, host, leave),
            (Leg::Left, tensor, host, left),
            (Leg::Return, host, back, returning),
            (Leg::Returned, host, back, returned),
        ] {
            let source = Operand { slot: Slot::Input(0), tensor: from };
            let is_copy = matches!(leg, Leg::Leave | Leg::Return);
            let target = Operand { slot: if is_copy { Slot::Output } else { Slot::Input(1) }, tensor: to };
            let (reads, writes) = if is_copy { (vec![source], vec![target]) } else { (vec![source, target], vec![]) };
            legs[at].push(Operation { action: Action::Park(leg), row, accumulate: false, reads, writes });
        }
    }
    // A copy belongs to the node of the operation that it comes before.
    let counts = legs.iter().map(|legs| legs.len() + 1);
    *nodes = nodes.iter().zip(counts).flat_map(|(&node, count)| iter::repeat_n(node, count)).collect();
    let all = legs.into_iter().zip(core::mem::take(operations));
    *operations = all.flat_map(|(legs, operation)| legs.into_iter().chain([operation])).collect();
    // Nothing runs again after this.
    prefixes.clear();
    parked
}

/// Parks activations in host memory, if that lowers the peak of the bytes of each sample.
pub(in crate::lower) fn park(draft: &mut Draft) {
    let Draft { operations, tensors, results, input_gradients, .. } = &*draft;
    let (Some(turn), Some(clock)) = (turn_of(operations), clock_of(operations, tensors)) else { return };
    let before = most_of_sample(operations, tensors);
    // Tensors that are read after the step stay.
    let lasting = [&results[..], input_gradients].concat();
    let mut gaps = gaps(operations, tensors, turn, &lasting);
    gaps.retain(|gap| {
        let elements = tensors[gap.tensor as usize].shape.elements().unwrap_or(0);
        i128::from(elements) * 4 * i128::from(LEAST) >= before[0]
    });
    let parked = with(draft, &chosen(gaps, operations, &clock, turn));
    if most_of_sample(&parked.operations, &parked.tensors).iter().zip(before).all(|(after, before)| *after < before) {
        *draft = parked;
    }
}

/// Returns the most bytes of activations that leave during the forward pass: as many as the bus moves then.
pub(in crate::lower) fn most_parked(program: &Program, at: &Sizes) -> u64 {
    let (operations, tensors) = (&program.operations, &program.tensors);
    let Some((turn, clock)) = turn_of(operations).zip(clock_of(operations, tensors)) else { return 0 };
    let setting = bus::sizes();
    let bytes = clock.begin(turn.first) / (u128::from(setting.flops_per_byte()) * u128::from(BUS));
    let [element, other] =
        [setting.precision, at.precision].map(|precision| u128::from(Role::Activation.bytes(precision)));
    let samples = u128::from(samples(at.batch, program.descent.parts()));
    u64::try_from(bytes * samples * other / (u128::from(SAMPLES) * element)).unwrap_or(u64::MAX)
}
