//! Fusion of a rectifier with gpumem's own kernel before it: a convolution, or max pooling.

use super::{Fused, RectifierGradient, are_apart, calls, forward_at, rectified};
use crate::operations::conv::convolution::forward_to;
use crate::operations::conv::max_pool;
use crate::operations::{Context, LaunchContext};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::Op;
use gpumem_core::program::fusion::Group;

pub(super) fn convolution(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let Some((operation, Op::Convolution(op), value)) = forward_at(placed, first) else { return Ok(None) };
    let Some((rectifier, output)) = rectified(placed, first + 1, value) else { return Ok(None) };
    if !are_apart(placed, first, 2) {
        return Ok(None);
    }
    let launches = forward_to(&Context { placed, operation, setting }, op, output, rectifier)?;
    Ok(Some((2, calls(launches))))
}

pub(super) fn maxima(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let Some((operation, Op::MaxPool(op), value)) = forward_at(placed, first) else { return Ok(None) };
    let Some((rectifier, output)) = rectified(placed, first + 1, value) else { return Ok(None) };
    if !are_apart(placed, first, 2) {
        return Ok(None);
    }
    let launches = max_pool::forward_to(&Context { placed, operation, setting }, op, output, rectifier)?;
    Ok(Some((2, calls(launches))))
}

/// Fuses the backward pass of a rectifier with that of the max pooling before it. The gradient between the two is never written.
pub(super) fn maxima_backward(placed: &Placed, group: Group, setting: LaunchContext) -> Fused {
    let (program, first) = (&placed.program, group.first);
    let operation = &program.operations[group.last()];
    let (Some(Op::MaxPool(op)), Some(RectifierGradient { rectifier, dy, output, between })) =
        (operation.backward(), RectifierGradient::at(placed, first))
    else {
        return Ok(None);
    };
    let is_gone = program.tensor(between).last as usize == group.last() && !program.results.contains(&between);
    // Threads read elements that other threads would have overwritten.
    let is_written = |id| operation.writes.iter().any(|written| written.tensor == id);
    if !is_gone || is_written(dy) || is_written(output) || !are_apart(placed, first, group.count) {
        return Ok(None);
    }
    let context = Context { placed, operation, setting };
    let launches = max_pool::backward_through(&context, op, dy, Some((rectifier, output)))?;
    Ok(Some((group.count, calls(launches))))
}
