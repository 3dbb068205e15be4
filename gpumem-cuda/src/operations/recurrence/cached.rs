//! Launches of the current time steps of a recurrent layer, which continue from cached outputs: `kernels/recurrence/cached_recurrence.cu`.

use super::{Plan, at_steps};
use crate::calls::Launch;
use crate::operations::context::Context;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{CachedRecurrence, Cell};

pub(in crate::operations) fn forward(context: &Context<'_>, op: &CachedRecurrence) -> Result<Vec<Launch>, Error> {
    let y = context.written(Slot::Output)?;
    let plan = Plan::new(context, op.whole(), y)?;
    let (p, w) = (context.read(Slot::Input(0))?, context.read(Slot::Input(1))?);
    let b = if op.bias { Some(context.read(Slot::Input(2))?) } else { None };
    let cells = if op.cell == Cell::Lstm { Some(context.written(Slot::Cache(1))?) } else { None };
    let (state, outputs) = (context.read(Slot::State)?, context.written(Slot::Cache(0))?);
    let [projection, _] = plan.projections()?;
    let units = if projection.is_some() { Some(context.written(Slot::Workspace)?) } else { None };
    let arguments = vec![Some(p), Some(w), b, Some(state), Some(outputs), cells, units, Some(y)];
    let kernel = |entry| plan.kernel_of("cached_recurrence.cu", entry);
    let mut each = vec![plan.step(&kernel("cached_recurrence"), op.hidden, arguments)?];
    if projection.is_some() {
        let arguments = vec![projection, Some(state), units, Some(outputs), Some(y)];
        each.push(plan.step(&kernel("cached_recurrence_project"), op.outputs, arguments)?);
    }
    Ok(at_steps(0..plan.steps, &each))
}
