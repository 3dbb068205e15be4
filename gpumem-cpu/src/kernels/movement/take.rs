//! Gather of a sample's rows by its own indices, `y[b, c, :] = x[b, index[b, c], :]`.
//!
//! Backward: `dx[b, t, :]` is the sum of `dy[b, c, :]` over all c whose index is t.

use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Take;

/// Returns two lengths and three sizes. They are the elements of the batch's input and indices, and a sample's rows, elements of a row, and indices.
fn resolve(op: &Take, operands: &Operands<'_>) -> Result<([usize; 2], [usize; 3]), Error> {
    if op.rows == 0 || op.width == 0 || op.count == 0 {
        return Err(Error::Damaged("rows are taken of nothing"));
    }
    let batch = operands.batch();
    let lengths = [count(&[batch, op.rows, op.width]), count(&[batch, op.count])];
    Ok((lengths, [count(&[op.rows]), count(&[op.width]), count(&[op.count])]))
}

/// Computes `y` from `x` and the indices.
pub(in crate::kernels) fn forward(op: &Take, operands: &mut Operands<'_>) -> Bound {
    let ([elements, indices], [rows, width, each]) = resolve(op, operands)?;
    let input = operands.source(Slot::Input(0), elements)?;
    let places = operands.words(Slot::Input(1), indices)?;
    let mut output = operands.target(Slot::Output, indices.saturating_mul(width))?;
    kernel(move |_| {
        let (x, places) = (input.get(), places.get());
        parallel::pieces(None, output.get(), width, |row, _, y| {
            match places[row] as usize {
                place if place < rows => y.copy_from_slice(&x[(row / each * rows + place) * width..][..width]),
                _ => y.fill(f32::NAN),
            }
            0.0
        });
    })
}

/// Computes `dx` from `dy` and the indices.
pub(in crate::kernels) fn backward(op: &Take, operands: &mut Operands<'_>) -> Bound {
    let ([elements, indices], [rows, width, each]) = resolve(op, operands)?;
    let gradient = operands.source(Slot::Gradient, indices.saturating_mul(width))?;
    let places = operands.words(Slot::Input(1), indices)?;
    let out = operands.gradient(Slot::InputGradient(0), elements)?;
    let mut out = out.ok_or(Error::Damaged("a backward operation writes no gradient"))?;
    kernel(move |_| {
        let (dy, places, accumulate) = (gradient.get(), places.get(), out.accumulate);
        parallel::pieces(None, out.target.get(), rows * width, |sample, _, dx| {
            if !accumulate {
                dx.fill(0.0);
            }
            let own = sample * each..(sample + 1) * each;
            for (&place, dy) in
                places[own.clone()].iter().zip(dy[own.start * width..own.end * width].chunks_exact(width))
            {
                if let Some(row) = dx.chunks_exact_mut(width).nth(place as usize) {
                    row.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy);
                }
            }
            0.0
        });
    })
}
