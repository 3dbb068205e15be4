//! Launches of elements that are added along an axis by indices: `kernels/movement/take_along.cu`.

use super::take_along::{NO_AXIS, add_along, kernel};
use crate::calls::Launch;
use crate::operations::context::Context;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::ScatterAdd;

pub(in crate::operations) fn forward(context: &Context<'_>, op: &ScatterAdd) -> Result<Vec<Launch>, Error> {
    let (x, index) = (context.read(Slot::Input(0))?, context.read(Slot::Input(1))?);
    let (source, y) = (context.read(Slot::Input(2))?, context.written(Slot::Output)?);
    if !op.is_sound() {
        return Err(NO_AXIS);
    }
    add_along(context, (op.extents(), op.count), (Some(x), index, source, y))
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &ScatterAdd) -> Result<Vec<Launch>, Error> {
    let (dy, index) = (context.read(Slot::Gradient)?, context.read(Slot::Input(1))?);
    let gradient = context.written(Slot::InputGradient(2))?;
    let (count, add) = (context.count(gradient), context.adds(Slot::InputGradient(2)));
    if !op.is_sound() {
        return Err(NO_AXIS);
    }
    let kernel = kernel(context, "take_along", (op.extents(), op.count), (count, 1, add));
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(dy), Some(index), Some(gradient)])])
}
