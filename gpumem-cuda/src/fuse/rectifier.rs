//! A convolution by own kernels and the rectifier behind it in one pass.

use super::{Fused, are_apart, calls, forward_at, rectified};
use crate::operations::convolution::forward_to;
use crate::operations::{Context, Setting};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::Op;

pub(super) fn convolution(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let Some((operation, Op::Convolution(op), value)) = forward_at(placed, first) else { return Ok(None) };
    let Some((rectifier, output)) = rectified(placed, first + 1, value) else { return Ok(None) };
    if !are_apart(placed, first, 2) {
        return Ok(None);
    }
    let launches = forward_to(&Context { placed, operation, setting }, op, output, rectifier)?;
    Ok(Some((2, calls(launches))))
}
