//! Indices made of indices: `kernels/attention/padded_positions.cu`, `kernels/attention/segment_positions.cu`, `kernels/movement/arg_max.cu` and `kernels/movement/as_strided.cu`.

use super::context::Context;
use crate::calls::{Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{ArgMax, AsStrided, PaddedPositions, SegmentPositions};
use gpumem_core::shape::Shape;

/// Returns a launch with a warp for each sample.
fn launch(context: &Context<'_>, kernel: Kernel, steps: u64) -> Result<Vec<Launch>, Error> {
    let (token, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let samples = context.samples(y);
    let blocks =
        u32::try_from(samples.div_ceil(8)).map_err(|_| Error::Damaged("more samples than a grid has blocks"))?;
    let kernel = kernel.with("SAMPLES", format!("{samples}ull")).with("STEPS", format!("{steps}ull"));
    let arguments = vec![Some(token), Some(y)];
    Ok(vec![Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() }])
}

pub(super) fn padded_positions(context: &Context<'_>, op: &PaddedPositions) -> Result<Vec<Launch>, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("positions that are no indices"));
    }
    let kernel = context.kernel("padded_positions.cu", "padded_positions");
    launch(context, kernel.with("PADDING", format!("{}u", op.padding)), op.count)
}

pub(super) fn arg_max(context: &Context<'_>, op: &ArgMax) -> Result<Vec<Launch>, Error> {
    if op.count == 0 || op.count > u64::from(u32::MAX) {
        return Err(Error::Damaged("the largest of no indices, or of more than 2^32"));
    }
    launch(context, context.kernel("arg_max.cu", "arg_max"), op.count)
}

pub(super) fn segment_positions(context: &Context<'_>, op: &SegmentPositions) -> Result<Vec<Launch>, Error> {
    let (segment, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    if !op.is_sound() || context.elements(segment) != context.elements(y) {
        return Err(Error::Damaged("positions that are no indices"));
    }
    let kernel = context.kernel("segment_positions.cu", "segment_positions");
    let kernel = kernel.with("SAMPLES", format!("{}ull", context.samples(y))).with("STEPS", format!("{}ull", op.count));
    Ok(vec![Launch::elementwise(kernel, context.count(y), vec![Some(segment), Some(y)])])
}

pub(super) fn as_strided(context: &Context<'_>, op: &AsStrided) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let samples = context.samples(y);
    let all = |shape: Shape| shape.elements().and_then(|elements| elements.checked_mul(samples));
    if !op.is_sound() || all(op.input) != Some(context.elements(x)) || all(op.output) != Some(context.elements(y)) {
        return Err(Error::Damaged("indices at strides that reach beyond those of a sample"));
    }
    // The samples are one more axis.
    let list = |first: u64, numbers: &[u64]| {
        let numbers: Vec<String> = [&[first], numbers].concat().iter().map(|number| format!("{number}ull")).collect();
        format!("{{{}}}", numbers.join(","))
    };
    let whole = context.elements(x) / samples.max(1);
    let kernel = context.kernel("as_strided.cu", "as_strided").with("AXES", op.output.rank() + 1);
    let kernel = kernel.with("COUNT", format!("{}ull", context.count(y))).with("START", format!("{}ull", op.start));
    let kernel = kernel.with("LENGTHS", list(samples, op.output.dims())).with("STRIDES", list(whole, &op.strides));
    Ok(vec![Launch::elementwise(kernel, context.count(y), vec![Some(x), Some(y)])])
}
