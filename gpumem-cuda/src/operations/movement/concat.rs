//! Launches of concatenation: `kernels/movement/concat.cu`.

use crate::calls::Launch;
use crate::operations::context::{Context, branch, other_layout};
use crate::operations::grid::{is_last, pack};
use gpumem_core::error::Error;
use gpumem_core::program::ops::Concat;
use gpumem_core::program::{Slot, TensorId};

/// Returns a launch that moves one branch's part of the rows between the branch, of `count` elements, and the concatenation.
fn move_part(
    context: &Context<'_>,
    op: &Concat,
    (parts, branch): (&[u64], usize),
    entry: &'static str,
    (count, add): (u64, u8),
    arguments: [TensorId; 2],
) -> Result<Launch, Error> {
    let sum = |parts: &[u64]| parts.iter().fold(0u64, |sum, &part| sum.saturating_add(part));
    // Layouts other than dense are supported for concatenation along channels only.
    let channels = op.lengths[branch];
    let own = op.shape.with(0, channels);
    let [x, y] = if entry == "concat" { arguments } else { [arguments[1], arguments[0]] };
    let maps = [("X_STRIDES", x, own), ("Y_STRIDES", y, op.shape)];
    // With channels last, the channels of a pixel form a row.
    let are_pixels = is_last(context, &maps);
    let parts = if are_pixels { &op.lengths } else { parts };
    let (part, whole, start) = (parts[branch], sum(parts), sum(&parts[..branch]));
    // Elements that a thread moves: MOVED of the kernel.
    let fits = |piece: &u64| [part, whole, start].iter().all(|number| number.is_multiple_of(*piece));
    let piece = [pack(context, 0), 4].into_iter().find(fits).unwrap_or(1);
    let kernel = context.kernel("concat.cu", entry).with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("PART", format!("{part}ull")).with("WHOLE", format!("{whole}ull"));
    let kernel = kernel.with("START", format!("{start}ull")).with("ADD", add);
    if are_pixels || arguments.iter().all(|&id| context.tensor(id).layout.is_dense()) {
        return Ok(Launch::elementwise(kernel, count / piece, arguments.map(Some).to_vec()));
    }
    let kernel = context.with_strides(kernel, &maps)?;
    let [_, height, width] = op.shape.as_map().ok_or_else(other_layout)?;
    let first = sum(&op.lengths[..branch]);
    let kernel = kernel.with("CHANNELS", channels).with("HEIGHT", height).with("WIDTH", width).with("FIRST", first);
    Ok(Launch::elementwise(kernel, count, arguments.map(Some).to_vec()))
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Concat) -> Result<Vec<Launch>, Error> {
    let (y, parts) = (context.written(Slot::Output)?, op.parts());
    let mut launches = Vec::new();
    for index in 0..parts.len() {
        let x = context.read(Slot::Input(branch(index)?))?;
        launches.push(move_part(context, op, (&parts, index), "concat", (context.count(x), 0), [x, y])?);
    }
    Ok(launches)
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Concat) -> Result<Vec<Launch>, Error> {
    let parts = op.parts();
    let (branch, dx) = context.gradient_of_branch(parts.len())?;
    let dy = context.read(Slot::Gradient)?;
    let (count, add) = (context.count(dx), context.adds(Slot::InputGradient(branch)));
    let part = (&*parts, usize::from(branch));
    Ok(vec![move_part(context, op, part, "concat_backward", (count, add), [dy, dx])?])
}
