//! Launches of functions with two slopes that save an activation mask, one bit of each element: `kernels/elementwise/rectifier.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::elementwise::pointwise::arguments;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Rectifier;

/// Elements of a thread, whose bits are one byte.
pub(in crate::operations) const EIGHT: u64 = 8;

/// Adds the constant that gives each thread eight elements to a kernel.
pub(in crate::operations) fn in_eights(kernel: Kernel) -> Kernel {
    kernel.with("EIGHT", 1)
}

/// Returns an output of an element whose bit is set, as an expression. The slope is that at this output.
pub(in crate::operations) fn inside(op: &Rectifier) -> String {
    format!("{:e}f", op.sides()[1])
}

fn kernel(context: &Context<'_>, op: &Rectifier, entry: &'static str, count: u64, add: u8) -> Kernel {
    let kernel = in_eights(context.kernel("rectifier.cu", entry).with("COUNT", format!("{count}ull")));
    let kernel = kernel.with("FUNCTION", op.of.function.name()).with("ARGUMENTS", arguments(&op.of));
    kernel.with("INSIDE", inside(op)).with("ADD", add)
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Rectifier) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let count = context.elements(y);
    let kernel = kernel(context, op, "rectifier", count, 0);
    let arguments = vec![Some(x), Some(y), context.operation.written(Slot::Saved(0))];
    Ok(vec![Launch::elementwise(kernel, count.div_ceil(EIGHT), arguments)])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Rectifier) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let count = context.elements(dx);
    let kernel = kernel(context, op, "rectifier_backward", count, context.adds(Slot::InputGradient(0)));
    let arguments = vec![Some(dy), Some(context.read(Slot::Saved(0))?), Some(dx)];
    Ok(vec![Launch::elementwise(kernel, count.div_ceil(EIGHT), arguments)])
}
