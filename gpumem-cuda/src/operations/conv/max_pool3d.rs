//! Launches of 3-D max pooling: `kernels/conv/max_pool3d.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::conv::volumes;
use gpumem_core::Role;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::MaxPool3d;

fn kernel(context: &Context<'_>, entry: &'static str, op: &MaxPool3d, count: u64, saves: bool, add: u8) -> Kernel {
    let kernel = context.kernel("max_pool3d.cu", entry).with("COUNT", format!("{count}ull"));
    let kernel = volumes(kernel, [op.input, op.output], &op.window, op.adaptive);
    let kernel = kernel.with("SAVES", u8::from(saves)).with("BYTES", u8::from(op.place_role() == Role::Byte));
    kernel.with("ADD", add)
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &MaxPool3d) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let places = context.operation.written(Slot::Saved(0));
    let count = context.count(y);
    let kernel = kernel(context, "max_pool3d_forward", op, count, places.is_some(), 0);
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(x), Some(y), places])])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &MaxPool3d) -> Result<Vec<Launch>, Error> {
    let (dy, places) = (context.read(Slot::Gradient)?, context.read(Slot::Saved(0))?);
    let dx = context.written(Slot::InputGradient(0))?;
    let count = context.count(dx);
    let kernel = kernel(context, "max_pool3d_backward", op, count, true, context.adds(Slot::InputGradient(0)));
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(dy), Some(places), Some(dx)])])
}
