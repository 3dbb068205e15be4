//! Fusion of a sum with the operation after it: a rectifier, or the normalisation of its rows.

use super::{Fused, are_apart, calls, ends, forward_at, rectified};
use crate::operations::elementwise::sum::add_and_rectify;
use crate::operations::norm::row_norm::forward_of;
use crate::operations::{Context, LaunchContext};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::ops::Sum;
use gpumem_core::program::{Op, Operation, Slot, TensorId};

pub(super) fn sum(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let Some((operation, Op::Sum(op), sum)) = forward_at(placed, first) else { return Ok(None) };
    if !are_apart(placed, first, 2) {
        return Ok(None);
    }
    let launches = if let Some((rectifier, output)) = rectified(placed, first + 1, sum) {
        add_and_rectify(&Context { placed, operation, setting }, op, output, rectifier)?
    } else if let Some((after, Op::Normalize(norm), _)) = forward_at(placed, first + 1)
        && after.read(Slot::Input(0)) == Some(sum)
        && let Some([x, residual]) = pair(placed, operation, op)
    {
        let context = Context { placed, operation: after, setting };
        forward_of(&context, norm, x, Some([residual, sum]))?
    } else {
        return Ok(None);
    };
    Ok(Some((2, calls(launches))))
}

/// Returns the two branches of a sum; `None` unless they are two different tensors of the sum's size.
fn pair(placed: &Placed, operation: &Operation, op: &Sum) -> Option<[TensorId; 2]> {
    let branches = [operation.read(Slot::Input(0))?, operation.read(Slot::Input(1))?];
    let batched = |id: TensorId| placed.program.tensor(id).batched;
    let sum = operation.written(Slot::Output)?;
    let is_pair = op.branches == 2 && branches[0] != branches[1];
    (is_pair && branches.iter().all(|&branch| batched(branch) == batched(sum))).then_some(branches)
}

/// Returns the other branch and the sum, if operation `at` adds `value` to one other map and nothing needs `value` afterwards; else `None`.
pub(super) fn added(placed: &Placed, at: usize, value: TensorId) -> Option<(TensorId, TensorId)> {
    let (operation, Op::Sum(Sum { branches: 2, .. }), output) = forward_at(placed, at)? else { return None };
    let (left, right) = (operation.read(Slot::Input(0))?, operation.read(Slot::Input(1))?);
    let other = if left == value { right } else { left };
    let is_sum = (left == value || right == value) && other != value;
    // A branch without a batch dimension is added to every sample.
    let program = &placed.program;
    let is_whole = program.tensor(other).batched == program.tensor(value).batched;
    (is_sum && is_whole && ends(placed, at, value)).then_some((other, output))
}
