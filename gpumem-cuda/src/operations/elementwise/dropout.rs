//! Launches of dropout: `kernels/elementwise/mask.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::pieces;
use gpumem_core::error::Error;
use gpumem_core::number::random::threshold;
use gpumem_core::program::ops::Mask;
use gpumem_core::program::{Slot, TensorId};

/// Adds the constants of an operation that draws: the threshold for a share `p` of dropped elements, and as `scale` the factor of the others.
///
/// Its row is a number of the launch, so that layers that differ only in their row are compiled once.
pub(in crate::operations) fn with_draws(kernel: Kernel, scale: &'static str, p: f64) -> Kernel {
    let (threshold, factor) = threshold_and_scale(p);
    kernel.with("THRESHOLD", format!("{threshold}u")).with_float(scale, factor)
}

/// Adds the number of draws of each part, `count`, if the batch is split into micro-batches or over ranks. A tensor that exists once for all samples is drawn once.
pub(in crate::operations) fn with_parts(kernel: Kernel, context: &Context<'_>, x: TensorId, count: u64) -> Kernel {
    let is_split = context.placed.program.descent.parts() > 1 && context.tensor(x).batched;
    if is_split { kernel.with("DRAWN", format!("{count}ull")) } else { kernel }
}

/// Returns the random word below which an element is dropped, and the factor of the others, an f32.
pub(in crate::operations) fn threshold_and_scale(p: f64) -> (u32, f64) {
    // A share of 1 keeps almost nothing, but the elements that it keeps must be finite.
    let factor = if p < 1.0 { (1.0 / (1.0 - p)) as f32 } else { 0.0 };
    (threshold(p), f64::from(factor))
}

fn launch(context: &Context<'_>, op: &Mask, x: TensorId, y: TensorId, add: u8) -> Result<Vec<Launch>, Error> {
    let count = context.elements(y);
    let kernel = context.kernel("mask.cu", "mask").with("COUNT", format!("{}ull", context.count(y)));
    let kernel = with_draws(kernel, "SCALE", op.p).with("ADD", add).with("SHARED", format!("{}ull", op.shared));
    let kernel = with_parts(kernel, context, y, context.count(y) / op.shared.max(1));
    let arguments = vec![Some(x), Some(context.read(Slot::State)?), Some(y)];
    let row = vec![op.stream(context.operation.row)];
    if !context.tensor(y).layout.is_dense() {
        let (sizes, _) =
            context.tensor(y).layout.places(op.shape).ok_or_else(crate::operations::context::other_layout)?;
        let kernel = context.with_strides(kernel, &[("X_STRIDES", y, op.shape)])?;
        let kernel = kernel.with("CHANNELS", sizes[0]).with("HEIGHT", sizes[1]).with("WIDTH", sizes[2]);
        return Ok(vec![Launch::elementwise(kernel, context.count(y), arguments).with_numbers(row)]);
    }
    Ok(vec![Launch::elementwise(kernel, pieces(context, count), arguments).with_numbers(row)])
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Mask) -> Result<Vec<Launch>, Error> {
    launch(context, op, context.read(Slot::Input(0))?, context.written(Slot::Output)?, 0)
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Mask) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    launch(context, op, dy, dx, context.adds(Slot::InputGradient(0)))
}
