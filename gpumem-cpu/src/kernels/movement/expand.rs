//! Repetition of a value that all samples share, once for each sample.

pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Expand;

/// Copies `x` for each sample: `y[s] = x`.
pub(in crate::kernels) fn forward(op: &Expand, operands: &mut Operands<'_>) -> Bound {
    let length = count(op.shape.dims());
    let all = operands.any_length(Slot::Output).unwrap_or(0);
    if length == 0 || !all.is_multiple_of(length) {
        return Err(Error::Damaged("a value for all samples does not fit each of them"));
    }
    let input = operands.source(Slot::Input(0), length)?;
    let mut output = operands.target(Slot::Output, all)?;
    kernel(move |_| {
        let x = input.get();
        parallel::pieces(None, output.get(), length, |_, _, y| {
            y.copy_from_slice(x);
            0.0
        });
    })
}
