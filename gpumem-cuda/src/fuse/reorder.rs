//! Fusion of elementwise operations that are not consecutive: a launch moves past others to the launch that reads its result.
//!
//! An example is `Silu(x W1)`, then `x W2`, then their elementwise product. The second matrix product is moved to the front; Silu and the product
//! become one launch. In the backward pass, the gradients of the elementwise product and of Silu become one launch before the gradients of the
//! matrix products.
//!
//! Two launches may change places if neither writes where the other has a tensor. The plan placed tensors for the order of the program, so tensors
//! are compared by their bytes, not by their numbers.

use super::{chain, overlap};
use crate::calls::OperationCalls;
use crate::operations::LaunchContext;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Leg, Operation, TensorId};

/// Returns the launches with all such chains. Each chain replaces two launches.
pub(crate) fn joined(placed: &Placed, setting: LaunchContext, mut steps: Vec<OperationCalls>) -> Vec<OperationCalls> {
    let is_elementwise = |step: &OperationCalls| chain::is_elementwise(placed, &step.operations(), setting);
    let mut elementwise: Vec<bool> = steps.iter().map(is_elementwise).collect();
    let mut at = 0;
    while at < steps.len() {
        let found = if elementwise[at] { partner(placed, setting, &steps, &elementwise, at) } else { None };
        match found {
            None => at += 1,
            Some(Joined { kept, gone, step }) => {
                steps[kept] = step;
                steps.remove(gone);
                elementwise.remove(gone);
            }
        }
    }
    steps
}

/// Two launches merged into one.
struct Joined {
    /// The index of the launch whose position the merged one takes.
    kept: usize,
    /// The index of the other one.
    gone: usize,
    step: OperationCalls,
}

/// Merges step `at` with the nearest step that reads its result; `None` if neither can move to the other.
fn partner(
    placed: &Placed,
    setting: LaunchContext,
    steps: &[OperationCalls],
    elementwise: &[bool],
    at: usize,
) -> Option<Joined> {
    let operations = &placed.program.operations;
    let own = Touched::by_chain(placed, &steps[at]);
    let last = own.writes.iter().map(|&id| placed.program.tensor(id).last as usize).max()?;
    let phase = |step: &OperationCalls| step.phase(&placed.program);
    let reads_own = |step: &OperationCalls| {
        let mut read = step.operations().into_iter().flat_map(|index| &operations[index].reads);
        read.any(|operand| own.writes.contains(&operand.tensor))
    };
    let mut can_sink = true;
    for (other, step) in steps.iter().enumerate().skip(at + 1) {
        if step.operations()[0] > last {
            break;
        }
        if elementwise[other] && phase(step) == phase(&steps[at]) && reads_own(step) {
            let can_rise = || {
                let rising = Touched::by_chain(placed, step);
                let mut between = steps[at + 1..other].iter().map(|step| Touched::by(placed, step));
                between.all(|passed| may_change_places(placed, &rising, &passed))
            };
            let (kept, gone) = if can_sink { (other, at) } else { (at, other) };
            if (can_sink || can_rise())
                && let Some(step) = together(placed, setting, &steps[kept], &steps[gone])
            {
                return Some(Joined { kept, gone, step });
            }
        }
        can_sink = can_sink && may_change_places(placed, &own, &Touched::by(placed, step));
    }
    None
}

/// Merges two steps into one launch at the position of `kept`; `None` if they cannot be fused.
fn together(
    placed: &Placed,
    setting: LaunchContext,
    kept: &OperationCalls,
    gone: &OperationCalls,
) -> Option<OperationCalls> {
    let mut moved = [kept.moved.clone(), gone.operations()].concat();
    moved.sort_unstable();
    let step = OperationCalls { moved, ..kept.clone() };
    let launch = chain::launch(placed, &step.operations(), setting)?;
    Some(OperationCalls { calls: vec![launch.into()], ..step })
}

/// The tensors that a step reads without having written them, and those that it writes.
struct Touched {
    reads: Vec<TensorId>,
    writes: Vec<TensorId>,
}

impl Touched {
    /// Returns every tensor that the operations touch, needed or not. An operation that waits for a copy or an exchange counts as its writer:
    /// until then it may be running.
    fn by(placed: &Placed, step: &OperationCalls) -> Touched {
        let mut touched = Touched { reads: Vec::new(), writes: Vec::new() };
        for index in step.operations() {
            let Operation { action, reads, writes, .. } = &placed.program.operations[index];
            if matches!(action, Action::Park(Leg::Left | Leg::Returned) | Action::Settle | Action::EndExchange(_)) {
                touched.writes.extend(reads.iter().map(|operand| operand.tensor));
            }
            let fresh = reads.iter().map(|operand| operand.tensor).filter(|id| !touched.writes.contains(id));
            touched.reads.extend(fresh);
            touched.writes.extend(writes.iter().map(|operand| operand.tensor));
        }
        touched
    }

    /// Returns the tensors of elementwise operations without those between them, which stay in registers.
    fn by_chain(placed: &Placed, step: &OperationCalls) -> Touched {
        let mut touched = Touched::by(placed, step);
        let operations = step.operations();
        touched.writes.retain(|&id| chain::is_needed(placed, &operations, id));
        touched
    }
}

/// True if two consecutive steps may run in the opposite order.
fn may_change_places(placed: &Placed, one: &Touched, other: &Touched) -> bool {
    let is_clear = |written: &[TensorId], tensors: &[TensorId]| {
        written.iter().all(|&a| tensors.iter().all(|&b| a != b && !overlap(placed, a, b)))
    };
    is_clear(&one.writes, &other.reads) && is_clear(&one.writes, &other.writes) && is_clear(&other.writes, &one.reads)
}
