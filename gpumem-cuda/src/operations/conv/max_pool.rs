//! Launches of max pooling: `kernels/conv/max_pool.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::elementwise::pointwise::Rectifier;
use crate::operations::grid::planes;
use gpumem_core::Role;
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
    let kernel = kernel.with("SAVES", u8::from(saves)).with("BYTES", u8::from(op.place_role() == Role::Byte));
    kernel.with("ADAPTIVE", u8::from(op.adaptive)).with("ADD", add)
}

/// Adds the layouts of the maps to a kernel. Also returns the number of channels that a thread works on.
fn lie(
    context: &Context<'_>,
    op: &MaxPool,
    kernel: Kernel,
    x: TensorId,
    y: TensorId,
    places: TensorId,
) -> Result<(Kernel, u64), Error> {
    let (input, output) = (Shape::new(&[op.channels, op.input[0], op.input[1]]), op.output());
    let maps = [("X_STRIDES", x, input), ("Y_STRIDES", y, output), ("S_STRIDES", places, output)];
    planes(context, kernel, op.channels, &maps)
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &MaxPool) -> Result<Vec<Launch>, Error> {
    forward_to(context, op, context.written(Slot::Output)?, Rectifier::NONE)
}

/// Returns the launch of the maxima, with a rectifier, to `y`.
pub(crate) fn forward_to(
    context: &Context<'_>,
    op: &MaxPool,
    y: TensorId,
    rectifier: Rectifier,
) -> Result<Vec<Launch>, Error> {
    let x = context.read(Slot::Input(0))?;
    let places = context.operation.written(Slot::Saved(0));
    let count = context.count(y);
    let kernel = kernel(context, "max_pool_forward", op, count, places.is_some(), 0).with("RECTIFIER", rectifier);
    let (kernel, pack) = lie(context, op, kernel, x, y, places.unwrap_or(y))?;
    Ok(vec![Launch::elementwise(kernel, count / pack, vec![Some(x), Some(y), places])])
}

/// The most elements for which a thread has sums.
const MOST_SUMS: u64 = 4;

/// Returns the blocks of elements along each axis, if a thread may work on one; else `None`. A block has the elements between the beginnings of two
/// windows, so that a window is not read again for each of them.
fn blocks(op: &MaxPool) -> Option<[u64; 2]> {
    let window = &op.window;
    let elements = window.stride[0].saturating_mul(window.stride[1]);
    let fits = !op.adaptive && window.dilation == [1, 1] && (2..=MOST_SUMS).contains(&elements);
    let along = |axis: usize| {
        let (padding, stride) = (window.padding[axis], window.stride[axis]);
        (op.input[axis] + padding).saturating_sub(1) / stride - padding / stride + 1
    };
    fits.then(|| [along(0), along(1)])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &MaxPool) -> Result<Vec<Launch>, Error> {
    backward_through(context, op, context.read(Slot::Gradient)?, None)
}

/// Returns the launch of the backward pass from `dy`. With `after`, the rectifier after the maxima and its output, `dy` is the gradient of that
/// output.
pub(crate) fn backward_through(
    context: &Context<'_>,
    op: &MaxPool,
    dy: TensorId,
    after: Option<(Rectifier, TensorId)>,
) -> Result<Vec<Launch>, Error> {
    let places = context.read(Slot::Saved(0))?;
    let dx = context.written(Slot::InputGradient(0))?;
    let count = context.count(dx);
    let kernel = kernel(context, "max_pool_backward", op, count, true, context.adds(Slot::InputGradient(0)));
    let kernel = kernel.with("RECTIFIER", after.map_or(Rectifier::NONE, |(rectifier, _)| rectifier));
    let (kernel, pack) = lie(context, op, kernel, dx, dy, places)?;
    let y = after.map(|(_, y)| y);
    let (kernel, threads) = match blocks(op).filter(|_| pack > 1) {
        Some([rows, columns]) => {
            let kernel = kernel.with("BLOCKS_H", rows).with("BLOCKS_W", columns);
            (kernel, context.samples(dx) * (op.channels / pack) * rows * columns)
        }
        None => (kernel, count / pack),
    };
    Ok(vec![Launch::elementwise(kernel, threads, vec![Some(dy), Some(places), y, Some(dx)])])
}
