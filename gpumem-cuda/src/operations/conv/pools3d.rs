//! Launches of 3-D max and average pooling: `kernels/conv/max_pool3d.cu` and `kernels/conv/average_pool3d.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use gpumem_core::Role;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{AveragePool3d, MaxPool3d, Window, Windows};

/// Elements of a window from which on a warp sums each window: then most of its lanes have work.
const LARGE: u64 = 24;

/// Elements from which on a warp sums each sliding window. Many sliding windows read the same elements, so up to here a thread for each window
/// keeps a card busy.
const LARGE_SLIDING: u64 = 256;

/// Adds the constants of `volumes.cuh` to a kernel.
fn windows(kernel: Kernel, [input, output]: [[u64; 3]; 2], window: &Window<3>, adaptive: bool) -> Kernel {
    let constants = [
        (["DEPTH", "HEIGHT", "WIDTH"], input),
        (["OUT_DEPTH", "OUT_HEIGHT", "OUT_WIDTH"], output),
        (["KERNEL_D", "KERNEL_H", "KERNEL_W"], window.kernel_size),
        (["STRIDE_D", "STRIDE_H", "STRIDE_W"], window.stride),
        (["PADDING_D", "PADDING_H", "PADDING_W"], window.padding),
        (["DILATION_D", "DILATION_H", "DILATION_W"], window.dilation),
    ];
    let all = constants.into_iter().flat_map(|(names, sizes)| names.into_iter().zip(sizes));
    all.fold(kernel, |kernel, (name, size)| kernel.with(name, size)).with("ADAPTIVE", u8::from(adaptive))
}

fn maxima(context: &Context<'_>, entry: &'static str, op: &MaxPool3d, count: u64, saves: bool, add: u8) -> Kernel {
    let kernel = context.kernel("max_pool3d.cu", entry).with("COUNT", format!("{count}ull"));
    let kernel = windows(kernel, [op.input, op.output], &op.window, op.adaptive);
    let kernel = kernel.with("SAVES", u8::from(saves)).with("BYTES", u8::from(op.place_role() == Role::Byte));
    kernel.with("ADD", add)
}

pub(in crate::operations) fn max_forward(context: &Context<'_>, op: &MaxPool3d) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let places = context.operation.written(Slot::Saved(0));
    let count = context.count(y);
    let kernel = maxima(context, "max_pool3d_forward", op, count, places.is_some(), 0);
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(x), Some(y), places])])
}

pub(in crate::operations) fn max_backward(context: &Context<'_>, op: &MaxPool3d) -> Result<Vec<Launch>, Error> {
    let (dy, places) = (context.read(Slot::Gradient)?, context.read(Slot::Saved(0))?);
    let dx = context.written(Slot::InputGradient(0))?;
    let count = context.count(dx);
    let kernel = maxima(context, "max_pool3d_backward", op, count, true, context.adds(Slot::InputGradient(0)));
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(dy), Some(places), Some(dx)])])
}

/// Returns the window of average pooling, and true if zeros of the padding count. For adaptive pooling it is as large as the largest window.
fn window(op: &AveragePool3d) -> (Window<3>, bool) {
    match op.windows {
        Windows::Sliding { window, count_include_pad } => (window, count_include_pad),
        Windows::Adaptive => {
            let largest = [0, 1, 2].map(|axis| {
                let (input, output) = (op.input[axis], op.output[axis].max(1));
                // If the sizes do not divide, a window may include a part of an element at either end.
                input.div_ceil(output).saturating_add(u64::from(!input.is_multiple_of(output))).min(input)
            });
            (Window { kernel_size: largest, stride: [1; 3], padding: [0; 3], dilation: [1; 3] }, false)
        }
    }
}

fn means(context: &Context<'_>, entry: &'static str, op: &AveragePool3d, count: u64, add: u8) -> Kernel {
    let kernel = context.kernel("average_pool3d.cu", entry).with("COUNT", format!("{count}ull"));
    let (window, padded) = window(op);
    let kernel = windows(kernel, [op.input, op.output], &window, op.windows == Windows::Adaptive);
    kernel.with("PADDED", u8::from(padded)).with("ADD", add)
}

pub(in crate::operations) fn average_forward(context: &Context<'_>, op: &AveragePool3d) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let count = context.count(y);
    let is_large = window(op).0.area() >= if op.windows == Windows::Adaptive { LARGE } else { LARGE_SLIDING };
    let (entry, threads) = if is_large {
        ("average_pool3d_forward_large", count.saturating_mul(32))
    } else {
        ("average_pool3d_forward", count)
    };
    let kernel = means(context, entry, op, count, 0);
    Ok(vec![Launch::elementwise(kernel, threads, vec![Some(x), Some(y)])])
}

pub(in crate::operations) fn average_backward(context: &Context<'_>, op: &AveragePool3d) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let count = context.count(dx);
    let kernel = means(context, "average_pool3d_backward", op, count, context.adds(Slot::InputGradient(0)));
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(dy), Some(dx)])])
}
