//! Launches that gather some rows of a sample by indices of its own: `kernels/movement/take.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Take;

fn kernel(context: &Context<'_>, op: &Take, entry: &'static str, count: u64, add: u8) -> Result<Kernel, Error> {
    if op.rows == 0 || op.width == 0 || op.count == 0 {
        return Err(Error::Damaged("rows are taken of nothing"));
    }
    let kernel = context.kernel("take.cu", entry).with("COUNT", format!("{count}ull")).with("ADD", add);
    let kernel = kernel.with("ROWS", format!("{}ull", op.rows)).with("EACH", format!("{}ull", op.count));
    Ok(kernel.with("WIDTH", format!("{}ull", op.width)))
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Take) -> Result<Vec<Launch>, Error> {
    let (x, index) = (context.read(Slot::Input(0))?, context.read(Slot::Input(1))?);
    let y = context.written(Slot::Output)?;
    let count = context.count(y);
    let kernel = kernel(context, op, "take", count, 0)?;
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(x), Some(index), Some(y)])])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Take) -> Result<Vec<Launch>, Error> {
    let (dy, index) = (context.read(Slot::Gradient)?, context.read(Slot::Input(1))?);
    let dx = context.written(Slot::InputGradient(0))?;
    let count = context.count(dx);
    let kernel = kernel(context, op, "take_backward", count, context.adds(Slot::InputGradient(0)))?;
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(dy), Some(index), Some(dx)])])
}
