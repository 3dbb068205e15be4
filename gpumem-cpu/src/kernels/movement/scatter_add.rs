//! A value with others added to it along an axis, `y[i, r, j] = x[i, r, j] + sum of src[i, c, j]` over the places c whose index is r.
//!
//! Backward: `dsrc[i, c, j] = dy[i, index[i, c, j], j]`; the gradient of x is that of y.

use crate::kernels::movement::take_along::Blocks;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Source, Target};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::ScatterAdd;

fn resolve(op: &ScatterAdd, operands: &Operands<'_>) -> Result<Blocks, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("elements are added along no axis"));
    }
    Ok(Blocks::new(op.extents(), op.count, operands))
}

/// `y` from `x`, the indices and what is added.
pub(in crate::kernels) fn forward(op: &ScatterAdd, operands: &mut Operands<'_>) -> Bound {
    let blocks = resolve(op, operands)?;
    let [elements, indices] = blocks.all;
    let input: Source = operands.source(Slot::Input(0), elements)?;
    let places = operands.words(Slot::Input(1), indices)?;
    let added: Source = operands.source(Slot::Input(2), indices)?;
    let mut output: Target = operands.target(Slot::Output, elements)?;
    kernel(move |_| {
        let x = input.get();
        blocks.add(added.get(), places.get(), output.get(), |first, y| y.copy_from_slice(&x[first..][..y.len()]));
    })
}

/// `dsrc` from `dy` and the indices.
pub(in crate::kernels) fn backward(op: &ScatterAdd, operands: &mut Operands<'_>) -> Bound {
    let blocks = resolve(op, operands)?;
    let [elements, indices] = blocks.all;
    let gradient = operands.source(Slot::Gradient, elements)?;
    let places = operands.words(Slot::Input(1), indices)?;
    let out = operands.gradient(Slot::InputGradient(2), indices)?;
    let mut out = out.ok_or(Error::Damaged("a backward operation writes no gradient"))?;
    kernel(move |_| blocks.take(gradient.get(), places.get(), out.target.get(), out.accumulate))
}
