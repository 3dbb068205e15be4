//! Launches of rotary position embeddings, which rotate heads by angles that grow with the time step: `kernels/attention/rotary.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
use crate::operations::grid::pack;
use gpumem_core::error::Error;
use gpumem_core::program::ops::Rotary;
use gpumem_core::program::{Slot, TensorId};

fn launch(
    context: &Context<'_>,
    op: &Rotary,
    [x, y]: [TensorId; 2],
    [back, add]: [u8; 2],
) -> Result<Vec<Launch>, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("heads that turn and are not in their rows"));
    }
    let (features, pairs) = (op.shape.last(), op.dims / 2);
    let steps = op.shape.elements().unwrap_or(0) / features.max(1);
    let rows = context.samples(y).saturating_mul(steps);
    let pack = match op.interleaved {
        true => 1,
        false => [pairs, op.width, features].map(|distance| pack(context, distance)).into_iter().min().unwrap_or(1),
    };
    // Written in place, elements that are not rotated are there already.
    let offsets = &context.placed.offsets;
    let whole = offsets[x as usize] != offsets[y as usize];
    let still = if whole { features - op.heads * op.dims } else { 0 };
    let units = pairs / pack + still;
    let count = rows.saturating_mul(units);
    let turns: Vec<String> = op.turns(f64::powf).iter().map(|turn| format!("{turn}ull")).collect();
    let state = op.follows.then(|| context.read(Slot::State)).transpose()?;
    let [file, entry] = if op.follows { ["rotary_following.cu", "rotary_following"] } else { ["rotary.cu", "rotary"] };
    let kernel = context.kernel(file, entry).with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("UNITS", format!("{units}ull")).with("STEPS", format!("{steps}ull"));
    let kernel = kernel.with("FEATURES", format!("{features}ull")).with("HEADS", op.heads).with("WIDTH", op.width);
    let kernel = kernel.with("DIMS", op.dims).with("TURNS", format!("{{{}}}", turns.join(",")));
    let kernel = kernel.with("INTERLEAVED", u8::from(op.interleaved)).with("BACK", back);
    let [before, across] = op.grid.map_or([0, 0], |[_, width]| [op.before, width]);
    let kernel = kernel.with("BEFORE", before).with("ACROSS", across);
    let kernel = kernel.with("WHOLE", u8::from(whole)).with("ADD", add).with("PACK", pack);
    let arguments = match state {
        Some(state) => vec![Some(x), Some(state), Some(y)],
        None => vec![Some(x), Some(y)],
    };
    Ok(vec![Launch::elementwise(kernel, count, arguments)])
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Rotary) -> Result<Vec<Launch>, Error> {
    launch(context, op, [context.read(Slot::Input(0))?, context.written(Slot::Output)?], [0, 0])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Rotary) -> Result<Vec<Launch>, Error> {
    let tensors = [context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?];
    launch(context, op, tensors, [1, context.adds(Slot::InputGradient(0))])
}
