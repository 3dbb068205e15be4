//! Launches of positions counted without padding: `kernels/attention/padded_positions.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
use crate::operations::grid::warp_for_each_sample;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::ops::PaddedPositions;

pub(in crate::operations) fn forward(context: &Context<'_>, op: &PaddedPositions) -> Result<Vec<Launch>, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("positions that are no indices"));
    }
    let kernel = context.kernel("padded_positions.cu", "padded_positions");
    warp_for_each_sample(context, kernel.with("PADDING", format!("{}u", op.padding)), op.count)
}
