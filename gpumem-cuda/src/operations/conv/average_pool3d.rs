//! Launches of 3-D average pooling: `kernels/conv/average_pool3d.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::conv::volumes;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{AveragePool3d, Window, Windows};

/// Elements of a window from which on a warp sums each window: then most of its lanes have work.
const LARGE: u64 = 24;

/// Elements from which on a warp sums each sliding window. Many sliding windows read the same elements, so up to here a thread for each window
/// keeps a card busy.
const LARGE_SLIDING: u64 = 256;

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

fn kernel(context: &Context<'_>, entry: &'static str, op: &AveragePool3d, count: u64, add: u8) -> Kernel {
    let kernel = context.kernel("average_pool3d.cu", entry).with("COUNT", format!("{count}ull"));
    let (window, padded) = window(op);
    let kernel = volumes(kernel, [op.input, op.output], &window, op.windows == Windows::Adaptive);
    kernel.with("PADDED", u8::from(padded)).with("ADD", add)
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &AveragePool3d) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let count = context.count(y);
    let is_large = window(op).0.area() >= if op.windows == Windows::Adaptive { LARGE } else { LARGE_SLIDING };
    let (entry, threads) = if is_large {
        ("average_pool3d_forward_large", count.saturating_mul(32))
    } else {
        ("average_pool3d_forward", count)
    };
    let kernel = kernel(context, entry, op, count, 0);
    Ok(vec![Launch::elementwise(kernel, threads, vec![Some(x), Some(y)])])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &AveragePool3d) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let count = context.count(dx);
    let kernel = kernel(context, "average_pool3d_backward", op, count, context.adds(Slot::InputGradient(0)));
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(dy), Some(dx)])])
}
