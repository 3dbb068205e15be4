//! Repeated rows and columns: `kernels/resize.cu`.

use super::context::Context;
use crate::calls::{Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Resize;

fn kernel(context: &Context<'_>, entry: &'static str, op: &Resize, count: u64, add: u8) -> Kernel {
    let kernel = context.kernel("resize.cu", entry).with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("WIDTH", op.input[1]);
    kernel.with("SCALE_H", op.scale_factor[0]).with("SCALE_W", op.scale_factor[1]).with("ADD", add)
}

pub(super) fn forward(context: &Context<'_>, op: &Resize) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let count = context.elements(y);
    let row = op.input[1].saturating_mul(op.scale_factor[1]);
    // What a thread writes at once: PIECE of the kernel.
    let piece = if row.is_multiple_of(4) { 4 } else { 1 };
    let kernel = kernel(context, "resize_forward", op, count, 0);
    Ok(vec![Launch::elementwise(kernel, count / piece, vec![Some(x), Some(y)])])
}

pub(super) fn backward(context: &Context<'_>, op: &Resize) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let count = context.elements(dx);
    let kernel = kernel(context, "resize_backward", op, count, context.adds(Slot::InputGradient(0)));
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(dy), Some(dx)])])
}
