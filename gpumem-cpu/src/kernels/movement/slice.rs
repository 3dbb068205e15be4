//! Slice along an axis, `y[.., t, :] = x[.., start + t, :]`.
//!
//! Backward: `dx[.., start + t, :] = dy[.., t, :]`, and 0 in the other rows.

use crate::kernels::conv::max_pool::required;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Slice;
use std::ops::Range;

/// Returns the elements of `x` per position before the axis, and the range of them in the slice.
fn resolve(op: &Slice) -> Result<(usize, Range<usize>), Error> {
    let whole = count(&[op.rows(), op.row()]);
    let [start, length] = [op.start, op.length].map(|rows| count(&[rows, op.row()]));
    match start.checked_add(length) {
        Some(end) if end <= whole => Ok((whole, start..end)),
        _ => Err(Error::Damaged("a part reaches beyond its whole")),
    }
}

/// Computes `y` from `x`.
pub(in crate::kernels) fn forward(op: &Slice, operands: &mut Operands<'_>) -> Bound {
    let (whole, part) = resolve(op)?;
    let samples = count(&[operands.batch(), op.outer()]);
    let input = operands.source(Slot::Input(0), samples.saturating_mul(whole))?;
    let mut output = operands.target(Slot::Output, samples.saturating_mul(part.len()))?;
    kernel(move |_| {
        let parts = output.get().chunks_exact_mut(part.len()).zip(input.get().chunks_exact(whole));
        parts.for_each(|(y, x)| y.copy_from_slice(&x[part.clone()]));
    })
}

/// Computes `dx` from `dy`.
pub(in crate::kernels) fn backward(op: &Slice, operands: &mut Operands<'_>) -> Bound {
    let (whole, part) = resolve(op)?;
    let samples = count(&[operands.batch(), op.outer()]);
    let gradient = operands.source(Slot::Gradient, samples.saturating_mul(part.len()))?;
    let (accumulate, mut target) = required(operands, samples.saturating_mul(whole))?;
    kernel(move |_| {
        let parts = target.get().chunks_exact_mut(whole).zip(gradient.get().chunks_exact(part.len()));
        parts.for_each(|(dx, dy)| {
            if accumulate {
                dx[part.clone()].iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
            } else {
                dx[..part.start].fill(0.0);
                dx[part.clone()].copy_from_slice(dy);
                dx[part.end..].fill(0.0);
            }
        });
    })
}
