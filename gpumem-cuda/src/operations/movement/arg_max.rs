//! Launches of the place of the largest index: `kernels/movement/arg_max.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
use crate::operations::grid::warp_for_each_sample;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::ops::ArgMax;

pub(in crate::operations) fn forward(context: &Context<'_>, op: &ArgMax) -> Result<Vec<Launch>, Error> {
    if op.count == 0 || op.count > u64::from(u32::MAX) {
        return Err(Error::Damaged("the largest of no indices, or of more than 2^32"));
    }
    warp_for_each_sample(context, context.kernel("arg_max.cu", "arg_max"), op.count)
}
