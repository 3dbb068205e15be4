//! Indices of a value at strides, `y[i, j] = x[start + i * strides[0] + j * strides[1]]`.

pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::AsStrided;
use rayon::prelude::*;

/// `y` from `x`.
pub(in crate::kernels) fn forward(op: &AsStrided, operands: &mut Operands<'_>) -> Bound {
    if !op.is_sound() {
        return Err(Error::Damaged("indices at strides that reach beyond those of a sample"));
    }
    let dims = |dims: &[u64]| count(&[&[operands.batch()], dims].concat());
    let (whole, all) = (dims(op.input.dims()), dims(op.output.dims()));
    let samples = count(&[operands.batch()]);
    let input = operands.words(Slot::Input(0), whole)?;
    let mut output = operands.word_target(Slot::Output, all)?;
    // Rows of the last axis, each of which begins somewhere and goes on in equal steps.
    let length = count(&[op.output.last()]);
    let step = op.strides.last().map_or(0, |&step| count(&[step]));
    let op = op.clone();
    kernel(move |_| {
        let (x, y) = (input.get(), output.get());
        let (whole, rows) = (x.len() / samples, y.len() / samples / length);
        y.par_chunks_mut(length).enumerate().for_each(|(row, y)| {
            let first = row / rows * whole + op.place((row % rows * length) as u64) as usize;
            y.iter_mut().enumerate().for_each(|(at, y)| *y = x[first + at * step]);
        });
    })
}
