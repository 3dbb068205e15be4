//! Maxima over windows: `kernels/max_pool.cu`.

use super::context::Context;
use crate::calls::{Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::MaxPool;
use gpumem_core::program::{Slot, TensorId};
use gpumem_core::shape::Shape;

fn kernel(context: &Context<'_>, entry: &'static str, op: &MaxPool, count: u64, saves: bool, add: u8) -> Kernel {
    let window = &op.window;
    let kernel = context.kernel("max_pool.cu", entry).with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("HEIGHT", op.input[0]).with("WIDTH", op.input[1]);
    let kernel = kernel.with("OUT_HEIGHT", op.output[0]).with("OUT_WIDTH", op.output[1]);
    let kernel = kernel.with("KERNEL_H", window.kernel_size[0]).with("KERNEL_W", window.kernel_size[1]);
    let kernel = kernel.with("STRIDE_H", window.stride[0]).with("STRIDE_W", window.stride[1]);
    let kernel = kernel.with("PADDING_H", window.padding[0]).with("PADDING_W", window.padding[1]);
    let kernel = kernel.with("DILATION_H", window.dilation[0]).with("DILATION_W", window.dilation[1]);
    kernel.with("SAVES", u8::from(saves)).with("ADD", add)
}

/// The kernel with where the maps lie.
fn lie(
    context: &Context<'_>,
    op: &MaxPool,
    kernel: Kernel,
    x: TensorId,
    y: TensorId,
    places: TensorId,
) -> Result<Kernel, Error> {
    let (input, output) = (Shape::new(&[op.channels, op.input[0], op.input[1]]), op.output());
    super::context::strided(
        context,
        kernel,
        op.channels,
        &[("X_STRIDES", x, input), ("Y_STRIDES", y, output), ("S_STRIDES", places, output)],
    )
}

pub(super) fn forward(context: &Context<'_>, op: &MaxPool) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let places = context.operation.written(Slot::Saved(0));
    let count = context.count(y);
    let kernel = kernel(context, "max_pool_forward", op, count, places.is_some(), 0);
    let kernel = lie(context, op, kernel, x, y, places.unwrap_or(y))?;
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(x), Some(y), places])])
}

pub(super) fn backward(context: &Context<'_>, op: &MaxPool) -> Result<Vec<Launch>, Error> {
    let (dy, places) = (context.read(Slot::Gradient)?, context.read(Slot::Saved(0))?);
    let dx = context.written(Slot::InputGradient(0))?;
    let count = context.count(dx);
    let kernel = kernel(context, "max_pool_backward", op, count, true, context.adds(Slot::InputGradient(0)));
    let kernel = lie(context, op, kernel, dx, dy, places)?;
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(dy), Some(places), Some(dx)])])
}
