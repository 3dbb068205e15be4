//! Launches of a relative position bias, a learned number for each head and each distance between query and key: `kernels/attention/relative_bias.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::RelativeBias;

/// The most distances, since a kernel has them as a table of constants.
const MOST_DISTANCES: u64 = 1 << 20;

fn kernel(context: &Context<'_>, op: &RelativeBias, entry: &'static str, add: u8) -> Result<Kernel, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("distances of positions that there are not"));
    }
    let [down, across] = op.offsets();
    if down.saturating_mul(across) > MOST_DISTANCES {
        let what = format!("a table of biases for {down} x {across} distances, of which there may be {MOST_DISTANCES}");
        return Err(Error::Unsupported { device: "CUDA", what });
    }
    let places: Vec<String> = op.table().iter().map(u32::to_string).collect();
    let kernel = context.kernel("relative_bias.cu", entry).with("HEADS", op.heads);
    let kernel = kernel.with("HEIGHT", op.size[0]).with("WIDTH", op.size[1]);
    Ok(kernel.with("PLACES", format!("{{{}}}", places.join(","))).with("ADD", add))
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &RelativeBias) -> Result<Vec<Launch>, Error> {
    let (table, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let kernel = kernel(context, op, "relative_bias_forward", 0)?;
    let count = op.output().elements().unwrap_or(u64::MAX);
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(table), Some(y)])])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &RelativeBias) -> Result<Vec<Launch>, Error> {
    let (dy, table) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let kernel = kernel(context, op, "relative_bias_backward", context.adds(Slot::InputGradient(0)))?;
    let blocks = op.rows().checked_mul(op.heads).and_then(|blocks| i32::try_from(blocks).ok()).map(i32::unsigned_abs);
    let blocks = blocks.ok_or(Error::Damaged("a table of more elements than a grid has blocks"))?;
    let arguments = vec![Some(dy), Some(table)];
    Ok(vec![Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() }])
}
