//! Launches of positions in segments: `kernels/attention/segment_positions.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::SegmentPositions;

pub(in crate::operations) fn forward(context: &Context<'_>, op: &SegmentPositions) -> Result<Vec<Launch>, Error> {
    let (segment, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    if !op.is_sound() || context.elements(segment) != context.elements(y) {
        return Err(Error::Damaged("positions that are no indices"));
    }
    let kernel = context.kernel("segment_positions.cu", "segment_positions");
    let kernel = kernel.with("SAMPLES", format!("{}ull", context.samples(y))).with("STEPS", format!("{}ull", op.count));
    Ok(vec![Launch::elementwise(kernel, context.count(y), vec![Some(segment), Some(y)])])
}
