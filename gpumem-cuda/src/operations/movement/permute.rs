//! Launches that permute axes: `kernels/movement/permute.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
use crate::operations::grid::pack;
use gpumem_core::error::Error;
use gpumem_core::program::ops::{Moved, Permute};
use gpumem_core::program::{Slot, TensorId};

/// Rows and columns of the tile that a block moves: SIDE of the kernel.
const SIDE: u64 = 32;

fn launch(context: &Context<'_>, op: &Permute, [x, y]: [TensorId; 2], add: u8) -> Result<Vec<Launch>, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("axes in another order that are not those of the value"));
    }
    let axes = op.moved(context.samples(y));
    let last = axes.len() - 1;
    let near = axes.iter().position(|axis| axis.from == 1).unwrap_or(last);
    let list = |number: fn(&Moved) -> u64| {
        let numbers: Vec<String> = axes.iter().map(|axis| format!("{}ull", number(axis))).collect();
        format!("{{{}}}", numbers.join(","))
    };
    let entry = if near == last { "permute_rows" } else { "permute_tiles" };
    let kernel = context.kernel("permute.cu", entry).with("AXES", axes.len()).with("LENGTHS", list(|axis| axis.length));
    let kernel = kernel.with("FROM", list(|axis| axis.from)).with("TO", list(|axis| axis.to));
    let kernel = kernel.with("NEAR", near).with("ADD", add);
    let arguments = vec![Some(x), Some(y)];
    let count = context.count(y);
    if near == last {
        // All distances must be multiples of a pack; otherwise the kernel moves single elements.
        let distances = axes[..last].iter().flat_map(|axis| [axis.from, axis.to]).chain([axes[last].length]);
        let pack = distances.map(|distance| pack(context, distance)).min().unwrap_or(1);
        return Ok(vec![Launch::elementwise(kernel, count / pack, arguments)]);
    }
    let sides = [axes[near].length, axes[last].length];
    let outer = count / sides[0] / sides[1];
    let blocks = sides.iter().fold(outer, |blocks, side| blocks.saturating_mul(side.div_ceil(SIDE)));
    let blocks =
        u32::try_from(blocks).map_err(|_| Error::Damaged("axes change places in more tiles than a grid has"))?;
    Ok(vec![Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() }])
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Permute) -> Result<Vec<Launch>, Error> {
    launch(context, op, [context.read(Slot::Input(0))?, context.written(Slot::Output)?], 0)
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Permute) -> Result<Vec<Launch>, Error> {
    let tensors = [context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?];
    launch(context, &op.inverse(), tensors, context.adds(Slot::InputGradient(0)))
}
