//! Launches of an embedding, which gathers a row of a table for each token: `kernels/movement/gather.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::pack;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Gather;

/// Columns that a block of the backward kernel sums, one for each thread.
const THREADS: u32 = 256;

/// Blocks that keep every multiprocessor of a card busy.
const BUSY: u64 = 1024;

fn kernel(context: &Context<'_>, op: &Gather, entry: &'static str, tokens: u64, rows: u64, add: u8) -> Kernel {
    let kernel = context.kernel("gather.cu", entry).with("TOKENS", format!("{tokens}ull"));
    let kernel = kernel.with("TABLE", format!("{}ull", op.rows));
    let kernel = kernel.with("PADDING", format!("{}ull", op.padding.unwrap_or(op.rows)));
    kernel.with("WIDTH", format!("{}ull", op.width)).with("ROWS", rows).with("ADD", add)
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Gather) -> Result<Vec<Launch>, Error> {
    let (token, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let weight = context.read(Slot::Input(1))?;
    let kernel = kernel(context, op, "gather", context.elements(token), 1, 0);
    let packs = context.elements(y) / pack(context, op.width);
    Ok(vec![Launch::elementwise(kernel, packs, vec![Some(token), Some(weight), Some(y)])])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Gather) -> Result<Vec<Launch>, Error> {
    let (token, dy) = (context.read(Slot::Input(0))?, context.read(Slot::Gradient)?);
    let dweight = context.written(Slot::InputGradient(1))?;
    let tokens = context.elements(token);
    // The kernel counts tokens in 32 bits.
    u32::try_from(tokens).map_err(|_| Error::Damaged("a table is read by more than 2^32 indices"))?;
    let slabs = op.width.div_ceil(u64::from(THREADS));
    // Every block reads all tokens, so large tables have few blocks and small ones many.
    let rows = (op.rows * slabs / BUSY).clamp(1, 32);
    let too_large = |_| Error::Damaged("a table has more rows than a grid has blocks");
    let blocks = u32::try_from(op.rows.div_ceil(rows)).map_err(too_large)?;
    let slabs = u32::from(u16::try_from(slabs).map_err(too_large)?);
    let add = context.adds(Slot::InputGradient(1));
    Ok(vec![Launch {
        kernel: kernel(context, op, "gather_backward", tokens, rows, add),
        grid: [blocks, slabs, 1],
        block: [THREADS, 1, 1],
        arguments: vec![Some(token), Some(dy), Some(dweight)],
        numbers: Vec::new(),
    }])
}
