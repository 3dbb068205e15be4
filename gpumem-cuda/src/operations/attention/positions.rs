//! Launches that read a table's rows for the current time steps of a sequence: `kernels/attention/positions.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
use crate::operations::grid::pack;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Positions;

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Positions) -> Result<Vec<Launch>, Error> {
    let (table, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let state = context.read(Slot::State)?;
    if op.rows == 0 || op.width == 0 {
        return Err(Error::Damaged("a table of positions has no rows"));
    }
    let pack = pack(context, op.width);
    let kernel = context.kernel("positions.cu", "positions").with("ROWS", format!("{}ull", op.rows));
    let kernel = kernel.with("WIDTH", format!("{}ull", op.width)).with("STEPS", op.count).with("PACK", pack);
    Ok(vec![Launch::elementwise(
        kernel,
        op.count.saturating_mul(op.width) / pack,
        vec![Some(table), Some(state), Some(y)],
    )])
}
