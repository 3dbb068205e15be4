//! Launches of L2 normalisation, elements along an axis divided by their norm: `kernels/norm/l2_norm.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
use crate::operations::grid::Rows;
use gpumem_core::error::Error;
use gpumem_core::program::ops::L2Norm;
use gpumem_core::program::{Slot, TensorId};

/// Returns one launch over the elements of `whole`. `entries` are the kernel for an axis with adjacent elements and the kernel for other axes.
fn launch(
    context: &Context<'_>,
    op: &L2Norm,
    entries: [&'static str; 2],
    whole: TensorId,
    add: u8,
    arguments: Vec<Option<TensorId>>,
) -> Result<Vec<Launch>, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("norms along an axis that the shape has not"));
    }
    let outer = context.samples(whole) * op.outer;
    let (entry, rows) = if op.inner == 1 {
        (entries[0], Rows::new(context, outer, op.length)?)
    } else {
        let blocks = u32::try_from((outer * op.inner).div_ceil(32))
            .map_err(|_| Error::Damaged("there are more norms than a grid has blocks"))?;
        (entries[1], Rows { warp: 0, grid: [blocks, 1, 1], block: [256, 1, 1] })
    };
    let kernel = context.kernel("l2_norm.cu", entry).with("OUTER", format!("{outer}ull"));
    let kernel = kernel.with("LENGTH", format!("{}ull", op.length)).with("INNER", format!("{}ull", op.inner));
    let kernel = kernel.with("WARP_ROWS", rows.warp).with_float("EPS", op.eps).with("ADD", add);
    Ok(vec![Launch { kernel, grid: rows.grid, block: rows.block, arguments, numbers: Vec::new() }])
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &L2Norm) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let norms = context.operation.written(Slot::Saved(0));
    launch(context, op, ["l2_norm_rows", "l2_norm_maps"], y, 0, vec![Some(x), Some(y), norms])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &L2Norm) -> Result<Vec<Launch>, Error> {
    let (dy, y) = (context.read(Slot::Gradient)?, context.read(Slot::Output)?);
    let (norms, dx) = (context.read(Slot::Saved(0))?, context.written(Slot::InputGradient(0))?);
    let (entries, add) = (["l2_norm_rows_backward", "l2_norm_maps_backward"], context.adds(Slot::InputGradient(0)));
    launch(context, op, entries, dx, add, vec![Some(dy), Some(y), Some(norms), Some(dx)])
}
