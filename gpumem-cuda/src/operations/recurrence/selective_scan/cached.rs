//! The launch of a scan of the current time steps, which continues from cached states: `kernels/recurrence/cached_scan.cu`.

use super::Plan;
use crate::calls::Launch;
use crate::operations::context::Context;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::CachedScan;

pub(in crate::operations) fn forward(context: &Context<'_>, op: &CachedScan) -> Result<Vec<Launch>, Error> {
    let y = context.written(Slot::Output)?;
    let plan = Plan::new(context, op.scan(), y)?;
    let mut arguments = plan.inputs()?;
    arguments.extend([Some(context.read(Slot::State)?), Some(context.written(Slot::Cache(0))?), Some(y)]);
    Ok(vec![plan.walk(plan.kernel_of("cached_scan.cu", "cached_scan"), plan.channels(), arguments)?])
}
