//! Fusion of a sum with the operation after it: a rectifier, or the normalisation of its rows. In the latter case dropout of a branch may come
//! before it.

use super::{Fused, are_apart, calls, ends, forward_at, rectified};
use crate::operations::elementwise::sum::add_and_rectify;
use crate::operations::norm::batch_norm::Drop;
use crate::operations::norm::row_norm::{Added, forward_of, may_drop};
use crate::operations::{Context, LaunchContext, is_dense};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::ops::{Mask, Sum};
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
        forward_of(&context, norm, x, Some(Added { residual, sum, drop: None }))?
    } else {
        return Ok(None);
    };
    Ok(Some((2, calls(launches))))
}

/// Fuses dropout with the sum that alone reads its output, and with the normalisation of the sum's rows.
pub(super) fn dropped(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let Some((operation, Op::Mask(mask @ Mask { p, shared: 1, .. }), value)) = forward_at(placed, first) else {
        return Ok(None);
    };
    let Some((residual, sum)) = added(placed, first + 1, value) else { return Ok(None) };
    let Some((after, Op::Normalize(norm), _)) = forward_at(placed, first + 2) else { return Ok(None) };
    let (Some(x), Some(state)) = (operation.read(Slot::Input(0)), operation.read(Slot::State)) else {
        return Ok(None);
    };
    let context = Context { placed, operation: after, setting };
    let is_its_norm = after.read(Slot::Input(0)) == Some(sum) && are_apart(placed, first, 3);
    if !(is_its_norm && may_drop(&context, norm) && is_dense(placed, operation)) {
        return Ok(None);
    }
    let drop = Drop { p: *p, row: mask.stream(operation.row), state };
    let launches = forward_of(&context, norm, x, Some(Added { residual, sum, drop: Some(drop) }))?;
    Ok(Some((3, calls(launches))))
}

/// Returns the two branches of a sum; `None` unless they are two different tensors. The first one has the sum's size. All samples may share the
/// second one.
fn pair(placed: &Placed, operation: &Operation, op: &Sum) -> Option<[TensorId; 2]> {
    let branches = [operation.read(Slot::Input(0))?, operation.read(Slot::Input(1))?];
    let batched = |id: TensorId| placed.program.tensor(id).batched;
    let sum = operation.written(Slot::Output)?;
    let [left, right] = branches;
    let whole_first = if batched(left) == batched(sum) { [left, right] } else { [right, left] };
    let is_pair = op.branches == 2 && left != right;
    (is_pair && batched(whole_first[0]) == batched(sum)).then_some(whole_first)
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
