//! The launch that repeats one sample for the whole batch: `kernels/movement/expand.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Expand;

pub(in crate::operations) fn forward(context: &Context<'_>, _: &Expand) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let (length, count) = (context.count(x), context.count(y));
    if length == 0 || !count.is_multiple_of(length) {
        return Err(Error::Damaged("a value for all samples does not fit each of them"));
    }
    let kernel = context.kernel("expand.cu", "expand").with("COUNT", format!("{count}ull"));
    Ok(vec![Launch::elementwise(kernel.with("LENGTH", format!("{length}ull")), count, vec![Some(x), Some(y)])])
}
