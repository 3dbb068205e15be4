//! Launches of reductions along an axis: `kernels/elementwise/reduce.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use gpumem_core::error::Error;
use gpumem_core::program::ops::{Reduce, Reduction};
use gpumem_core::program::{Slot, TensorId};

fn kernel(context: &Context<'_>, op: &Reduce, entry: &'static str, outer: u64, add: u8) -> Kernel {
    let scale = if op.reduction == Reduction::Mean { 1.0 / op.length as f64 } else { 1.0 };
    let kernel = context.kernel("reduce.cu", entry).with("OUTER", format!("{outer}ull"));
    let kernel = kernel.with("LENGTH", format!("{}ull", op.length)).with("INNER", format!("{}ull", op.inner));
    let kernel = kernel.with("MAXIMUM", u8::from(op.reduction == Reduction::Max));
    let is_mean = op.reduction == Reduction::Mean;
    let kernel = if op.counted {
        kernel.with("COUNTED", format!("{}ull", op.outer)).with("MEAN", u8::from(is_mean))
    } else {
        kernel
    };
    kernel.with("SCALE", format!("{:e}f", scale as f32)).with("ADD", add)
}

/// Returns the tensor that says how many elements count; `None` without one.
fn counts(context: &Context<'_>, op: &Reduce) -> Result<Option<TensorId>, Error> {
    if op.counted { context.read(Slot::Input(1)).map(Some) } else { Ok(None) }
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Reduce) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let places = context.operation.written(Slot::Saved(0));
    let outer = context.samples(y) * op.outer;
    // A block has eight warps.
    let (entry, results) = if op.inner == 1 { ("reduce_rows", 8) } else { ("reduce_maps", 32) };
    let blocks = u32::try_from((outer * op.inner).div_ceil(results))
        .map_err(|_| Error::Damaged("a reduction has more results than a grid has blocks"))?;
    let kernel = kernel(context, op, entry, outer, 0);
    let arguments = vec![Some(x), counts(context, op)?, Some(y), places];
    Ok(vec![Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() }])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Reduce) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let places = if op.has_places() { Some(context.read(Slot::Saved(0))?) } else { None };
    let outer = context.samples(dx) * op.outer;
    // For a maximum, the saved places are enough.
    let counts = if op.has_places() { None } else { counts(context, op)? };
    let kernel = kernel(context, op, "reduce_backward", outer, context.adds(Slot::InputGradient(0)));
    Ok(vec![Launch::elementwise(kernel, context.count(dx), vec![Some(dy), counts, places, Some(dx)])])
}
