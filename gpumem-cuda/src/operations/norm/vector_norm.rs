//! Launches of vector norms along an axis: `kernels/norm/vector_norm.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::VectorNorm;

fn kernel(
    context: &Context<'_>,
    op: &VectorNorm,
    (entry, outer): (&'static str, u64),
    add: u8,
) -> Result<Kernel, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("norms without an order, or along an axis without elements"));
    }
    let order = match op.p {
        1.0 => "One",
        2.0 => "Two",
        f64::INFINITY => "Most",
        _ => "Power",
    };
    let kernel = context.kernel("vector_norm.cu", entry).with("OUTER", format!("{outer}ull"));
    let kernel = kernel.with("LENGTH", format!("{}ull", op.length)).with("INNER", format!("{}ull", op.inner));
    let power = if order == "Power" { op.p } else { 1.0 };
    Ok(kernel.with("ORDER", order).with_float("POWER", power).with("ADD", add))
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &VectorNorm) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let ties = context.operation.written(Slot::Saved(0));
    let outer = context.samples(y) * op.outer;
    // A block has eight warps.
    let (entry, norms) = if op.inner == 1 { ("vector_norm_rows", 8) } else { ("vector_norm_maps", 32) };
    let kernel = kernel(context, op, (entry, outer), 0)?;
    let blocks = u32::try_from((outer * op.inner).div_ceil(norms))
        .map_err(|_| Error::Damaged("there are more norms than a grid has blocks"))?;
    let arguments = vec![Some(x), Some(y), ties];
    Ok(vec![Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() }])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &VectorNorm) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let (x, y) = (context.read(Slot::Input(0))?, context.read(Slot::Output)?);
    let ties = if op.has_ties() { Some(context.read(Slot::Saved(0))?) } else { None };
    let outer = context.samples(dx) * op.outer;
    let kernel = kernel(context, op, ("vector_norm_backward", outer), context.adds(Slot::InputGradient(0)))?;
    Ok(vec![Launch::elementwise(kernel, context.count(dx), vec![Some(dy), Some(x), Some(y), ties, Some(dx)])])
}
