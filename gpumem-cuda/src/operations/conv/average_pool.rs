//! Launches of average pooling: `kernels/conv/average_pool.cu`, and `kernels/conv/average_pool_adaptive.cu` for adaptive pooling.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::planes;
use gpumem_core::error::Error;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::{AveragePool, Window, Windows};
use gpumem_core::program::{Slot, TensorId};
use gpumem_core::shape::Shape;

/// Elements of an adaptive window from which on a warp sums each window: then most of its lanes have work.
const LARGE: u64 = 24;

/// Elements of a window from which on a warp for each window pays off even if threads work on packs of channels. In smaller windows, the packs keep
/// a card busy.
const VERY_LARGE: u64 = 256;

/// Adds height and width of the planes of x and y to a kernel.
fn sizes(kernel: Kernel, op: &AveragePool, count: u64) -> Kernel {
    let kernel = kernel.with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("HEIGHT", op.input[0]).with("WIDTH", op.input[1]);
    kernel.with("OUT_HEIGHT", op.output[0]).with("OUT_WIDTH", op.output[1])
}

fn sliding(
    context: &Context<'_>,
    entry: &'static str,
    op: &AveragePool,
    (window, padded): (&Window, bool),
    (count, add): (u64, u8),
) -> Kernel {
    let kernel = sizes(context.kernel("average_pool.cu", entry), op, count);
    let kernel = kernel.with("KERNEL_H", window.kernel_size[0]).with("KERNEL_W", window.kernel_size[1]);
    let kernel = kernel.with("STRIDE_H", window.stride[0]).with("STRIDE_W", window.stride[1]);
    let kernel = kernel.with("PADDING_H", window.padding[0]).with("PADDING_W", window.padding[1]);
    kernel.with("PADDED", u8::from(padded)).with("ADD", add)
}

fn adaptive(context: &Context<'_>, entry: &'static str, op: &AveragePool, (count, add): (u64, u8)) -> Kernel {
    sizes(context.kernel("average_pool_adaptive.cu", entry), op, count).with("ADD", add)
}

/// Adds the layouts of the maps to a kernel. Also returns the number of channels that a thread works on.
fn lie(
    context: &Context<'_>,
    op: &AveragePool,
    kernel: Kernel,
    x: TensorId,
    y: TensorId,
) -> Result<(Kernel, u64), Error> {
    let input = Shape::new(&[op.channels, op.input[0], op.input[1]]);
    planes(context, kernel, op.channels, &[("X_STRIDES", x, input), ("Y_STRIDES", y, op.output())])
}

/// Returns the number of threads that sum an adaptive window, if each works on `pack` channels.
fn lanes(op: &AveragePool, pack: u64) -> u64 {
    let side = |axis: usize| op.input[axis].div_ceil(op.output[axis].max(1));
    match side(0).saturating_mul(side(1)) {
        ..LARGE => 1,
        // Threads with packs have enough other elements to read.
        ..VERY_LARGE if pack > 1 => 4,
        _ => 32,
    }
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &AveragePool) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let count = context.count(y);
    let kernel = match &op.windows {
        Windows::Sliding { window, count_include_pad } => {
            sliding(context, "average_pool_forward", op, (window, *count_include_pad), (count, 0))
        }
        Windows::Adaptive => adaptive(context, "average_pool_adaptive_forward", op, (count, 0)),
    };
    let (kernel, pack) = lie(context, op, kernel, x, y)?;
    let (kernel, lanes) = match &op.windows {
        Windows::Sliding { .. } => (kernel, 1),
        Windows::Adaptive => (kernel.with("LANES", lanes(op, pack)), lanes(op, pack)),
    };
    Ok(vec![Launch::elementwise(kernel, (count / pack).saturating_mul(lanes), vec![Some(x), Some(y)])])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &AveragePool) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let (count, add) = (context.count(dx), context.adds(Slot::InputGradient(0)));
    let kernel = match &op.windows {
        Windows::Sliding { window, count_include_pad } => {
            sliding(context, "average_pool_backward", op, (window, *count_include_pad), (count, add))
        }
        Windows::Adaptive => adaptive(context, "average_pool_adaptive_backward", op, (count, add)).with("LANES", 1),
    };
    let (kernel, pack) = lie(context, op, kernel, dx, dy)?;
    Ok(vec![Launch::elementwise(kernel, count / pack, vec![Some(dy), Some(dx)])])
}
