//! Concatenation: each row of the output is the rows of all values, one after the other.
//!
//! Backward: a separate operation for each value copies its part.

use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Source, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Concat;
use rayon::prelude::*;

/// Returns the rows of the batch, and the elements of a row of the output.
fn sizes(parts: &[u64], outer: u64, operands: &Operands<'_>) -> (usize, usize) {
    let row = parts.iter().fold(0usize, |sum, &part| sum.saturating_add(count(&[part])));
    (count(&[operands.batch(), outer]), row)
}

/// Computes `y` from all inputs.
pub(in crate::kernels) fn forward(op: &Concat, operands: &mut Operands<'_>) -> Bound {
    let (rows, row) = sizes(&op.parts(), op.outer(), operands);
    let parts: Vec<usize> = op.parts().iter().map(|&part| count(&[part])).collect();
    let mut inputs: Vec<Source> = Vec::new();
    for (branch, &part) in parts.iter().enumerate() {
        let branch = u8::try_from(branch).map_err(|_| Error::Damaged("a concatenation has over 256 branches"))?;
        inputs.push(operands.source(Slot::Input(branch), rows.saturating_mul(part))?);
    }
    let mut output = operands.target(Slot::Output, rows.saturating_mul(row))?;
    kernel(move |_| {
        output.get().par_chunks_mut(row).enumerate().for_each(|(index, mut y)| {
            for (input, &part) in inputs.iter().zip(&parts) {
                let (head, tail) = y.split_at_mut(part);
                head.copy_from_slice(&input.get()[index * part..][..part]);
                y = tail;
            }
        });
    })
}

/// Computes the gradient of one value from `dy`.
pub(in crate::kernels) fn backward(op: &Concat, operands: &mut Operands<'_>) -> Bound {
    let parts = op.parts();
    let (rows, row) = sizes(&parts, op.outer(), operands);
    let branch = operands.branch()?;
    let (before, from) = parts.split_at_checked(usize::from(branch)).unwrap_or_default();
    let &part = from.first().ok_or(Error::Damaged("a concatenation's gradient names a branch too many"))?;
    let (start, part) = (before.iter().fold(0, |sum, &part| count(&[part]).saturating_add(sum)), count(&[part]));
    let gradient = operands.source(Slot::Gradient, rows.saturating_mul(row))?;
    let out = operands.gradient(Slot::InputGradient(branch), rows.saturating_mul(part))?;
    let mut out = out.ok_or(Error::Damaged("a backward operation writes no gradient"))?;
    kernel(move |_| {
        let (dy, accumulate) = (gradient.get(), out.accumulate);
        parallel::pieces(None, out.target.get(), part, |index, _, dx| {
            let dy = &dy[index * row + start..][..part];
            parallel::store(dx, accumulate, |i| dy[i]);
            0.0
        });
    })
}
