//! Launches of nearest-neighbour resizing, which repeats rows and columns: `kernels/movement/resize.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::planes;
use gpumem_core::error::Error;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::Resize;
use gpumem_core::program::{Slot, TensorId};
use gpumem_core::shape::Shape;

fn kernel(context: &Context<'_>, entry: &'static str, op: &Resize, count: u64, add: u8) -> Kernel {
    let kernel = context.kernel("resize.cu", entry).with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("WIDTH", op.input[1]);
    kernel.with("SCALE_H", op.scale_factor[0]).with("SCALE_W", op.scale_factor[1]).with("ADD", add)
}

/// Adds the layouts of the maps to a kernel. Also returns the number of channels that a thread works on; `None` if the maps are dense.
fn lie(
    context: &Context<'_>,
    op: &Resize,
    kernel: Kernel,
    x: TensorId,
    y: TensorId,
) -> Result<(Kernel, Option<u64>), Error> {
    if [x, y].iter().all(|&id| context.tensor(id).layout.is_dense()) {
        return Ok((kernel, None));
    }
    let input = Shape::new(&[op.channels, op.input[0], op.input[1]]);
    let maps = [("X_STRIDES", x, input), ("Y_STRIDES", y, op.output())];
    let (kernel, pack) = planes(context, kernel.with("HEIGHT", op.input[0]), op.channels, &maps)?;
    Ok((kernel, Some(pack)))
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Resize) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let count = context.count(y);
    let row = op.input[1].saturating_mul(op.scale_factor[1]);
    // Elements that a thread writes at once: PIECE of the kernel.
    let (kernel, pack) = lie(context, op, kernel(context, "resize_forward", op, count, 0), x, y)?;
    let piece = pack.unwrap_or(if row.is_multiple_of(4) { 4 } else { 1 });
    Ok(vec![Launch::elementwise(kernel, count / piece, vec![Some(x), Some(y)])])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Resize) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let count = context.count(dx);
    let kernel = kernel(context, "resize_backward", op, count, context.adds(Slot::InputGradient(0)));
    let (kernel, pack) = lie(context, op, kernel, dx, dy)?;
    Ok(vec![Launch::elementwise(kernel, count / pack.unwrap_or(1), vec![Some(dy), Some(dx)])])
}
