//! Launches of elements along an axis by indices: `kernels/movement/take_along.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use gpumem_core::error::Error;
use gpumem_core::program::ops::TakeAlong;
use gpumem_core::program::{Slot, TensorId};

/// A kernel for `count` elements, with lengths along the axis and after it.
pub(super) fn kernel(
    context: &Context<'_>,
    entry: &'static str,
    ([_, length, inner], each): ([u64; 3], u64),
    (count, rows, add): (u64, u64, u8),
) -> Kernel {
    let kernel = context.kernel("take_along.cu", entry).with("COUNT", format!("{count}ull")).with("ADD", add);
    let kernel = kernel.with("LENGTH", format!("{length}ull")).with("EACH", format!("{each}ull"));
    kernel.with("INNER", format!("{inner}ull")).with("ROWS", rows)
}

/// Threads of a block, each for a column: THREADS of the kernel.
const THREADS: u64 = 256;

/// Blocks that keep every multiprocessor of a card busy with reads of indices, several at a time in each thread.
const BUSY: u64 = 256;

/// `y = x` with `src` added to it: each thread has a column, and reads all of its indices for some elements along the axis.
pub(super) fn add_along(
    context: &Context<'_>,
    (extents, each): ([u64; 3], u64),
    (x, index, src, y): (Option<TensorId>, TensorId, TensorId, TensorId),
) -> Result<Vec<Launch>, Error> {
    let (count, [_, length, _]) = (context.count(y), extents);
    // Few elements a thread where there are few threads.
    let rows = (count / (BUSY * THREADS)).clamp(1, 32).min(length);
    let blocks = (count / length).div_ceil(THREADS).saturating_mul(length.div_ceil(rows));
    let grid = u32::try_from(blocks).ok().filter(|&blocks| blocks < 1 << 31);
    let grid = grid.ok_or(Error::Damaged("there are more columns than a grid has blocks"))?;
    let kernel = kernel(context, "add_along", (extents, each), (count, rows, 0));
    let arguments = vec![x, Some(index), Some(src), Some(y)];
    Ok(vec![Launch { kernel, grid: [grid, 1, 1], block: [THREADS as u32, 1, 1], arguments, numbers: Vec::new() }])
}

pub(super) const NO_AXIS: Error = Error::Damaged("elements are taken along no axis");

pub(in crate::operations) fn forward(context: &Context<'_>, op: &TakeAlong) -> Result<Vec<Launch>, Error> {
    let (x, index) = (context.read(Slot::Input(0))?, context.read(Slot::Input(1))?);
    let y = context.written(Slot::Output)?;
    let count = context.count(y);
    if !op.is_sound() {
        return Err(NO_AXIS);
    }
    let kernel = kernel(context, "take_along", (op.extents(), op.count), (count, 1, 0));
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(x), Some(index), Some(y)])])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &TakeAlong) -> Result<Vec<Launch>, Error> {
    let (dy, index) = (context.read(Slot::Gradient)?, context.read(Slot::Input(1))?);
    let dx = context.written(Slot::InputGradient(0))?;
    if !op.is_sound() {
        return Err(NO_AXIS);
    }
    let before = (context.adds(Slot::InputGradient(0)) == 1).then_some(dx);
    add_along(context, (op.extents(), op.count), (before, index, dy, dx))
}
