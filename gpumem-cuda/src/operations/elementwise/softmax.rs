//! Launches of softmax and log-softmax: `kernels/elementwise/softmax.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
use crate::operations::grid::Rows;
use gpumem_core::error::Error;
use gpumem_core::program::ops::Softmax;
use gpumem_core::program::{Slot, TensorId};

/// Returns one launch over the elements of `whole`. `entries` are the kernel for adjacent classes and the kernel for other axes.
fn launch(
    context: &Context<'_>,
    op: &Softmax,
    entries: [&'static str; 2],
    whole: TensorId,
    add: u8,
    arguments: Vec<Option<TensorId>>,
) -> Result<Vec<Launch>, Error> {
    let outer = context.samples(whole) * op.outer;
    let (entry, rows) = if op.inner == 1 {
        (entries[0], Rows::new(context, outer, op.classes)?)
    } else {
        let blocks = u32::try_from((outer * op.inner).div_ceil(32))
            .map_err(|_| Error::Damaged("a softmax has more positions than a grid has blocks"))?;
        (entries[1], Rows { warp: 0, grid: [blocks, 1, 1], block: [256, 1, 1] })
    };
    let kernel = context.kernel("softmax.cu", entry).with("OUTER", format!("{outer}ull"));
    let kernel = kernel.with("LENGTH", format!("{}ull", op.classes)).with("INNER", format!("{}ull", op.inner));
    let kernel = kernel.with("WARP_ROWS", rows.warp).with("ADD", add).with("LOGARITHM", u8::from(op.logarithm));
    Ok(vec![Launch { kernel, grid: rows.grid, block: rows.block, arguments, numbers: Vec::new() }])
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Softmax) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    launch(context, op, ["softmax_rows", "softmax_maps"], y, 0, vec![Some(x), Some(y)])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Softmax) -> Result<Vec<Launch>, Error> {
    let (dy, y) = (context.read(Slot::Gradient)?, context.read(Slot::Output)?);
    let dx = context.written(Slot::InputGradient(0))?;
    let entries = ["softmax_rows_backward", "softmax_maps_backward"];
    let add = context.adds(Slot::InputGradient(0));
    launch(context, op, entries, dx, add, vec![Some(dy), Some(y), Some(dx)])
}
