//! Launches of attention of a sequence's current time steps over all earlier ones: `kernels/attention/cached_attention.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::attention::grid;
use crate::operations::context::Context;
use crate::operations::grid::pack;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::CachedAttention;

/// The most query heads that a block works on, if they share a key head.
const MOST_HEADS: u64 = 4;

/// Elements of a head from which on a block has only one head: the sums of more would not fit in registers.
const WIDE: u64 = 256;

pub(in crate::operations) fn forward(context: &Context<'_>, op: &CachedAttention) -> Result<Vec<Launch>, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("attention has sizes that do not fit each other"));
    }
    let input = |index| context.read(Slot::Input(index));
    let [q, k, v] = if op.apart { [input(0)?, input(1)?, input(2)?] } else { [input(0)?; 3] };
    let (keys, values) = (context.written(Slot::Cache(0))?, context.written(Slot::Cache(1))?);
    let (state, parts, y) =
        (context.read(Slot::State)?, context.written(Slot::Workspace)?, context.written(Slot::Output)?);
    let samples = context.samples(y);
    let pack = [op.width, op.values].map(|width| pack(context, width)).into_iter().min().unwrap_or(1);
    let shared = op.heads / op.kv_heads;
    let group = if op.width.max(op.values) > WIDE {
        1
    } else {
        (1..=MOST_HEADS).rev().find(|&group| shared.is_multiple_of(group)).unwrap_or(1)
    };
    let kernel = |entry: &'static str| -> Kernel {
        let kernel = context.kernel("cached_attention.cu", entry).with("HEADS", op.heads).with("KV_HEADS", op.kv_heads);
        let kernel = kernel.with("HEAD", op.width).with("VALUE_HEAD", op.values).with("STEPS", op.steps());
        let kernel = kernel.with("CACHE", op.cache).with("WINDOW", op.window).with("APART", u8::from(op.apart));
        let kernel = kernel.with_float("SCALE", f64::from(op.scale as f32)).with("SAMPLES", samples);
        kernel.with("PARTS", op.split()).with("GROUP", group).with("PACK", pack)
    };
    let [_, key_row, value_row] = op.parts();
    let units = (key_row + value_row) / pack;
    let rows = samples.saturating_mul(op.steps());
    let kept = vec![Some(k), Some(v), Some(state), Some(keys), Some(values)];
    let block = |entry, blocks: &[u64], arguments| {
        let (kernel, grid) = (kernel(entry), [grid(blocks)?, 1, 1]);
        Ok(Launch { kernel, grid, block: [128, 1, 1], arguments, numbers: Vec::new() })
    };
    Ok(vec![
        Launch::elementwise(kernel("keep"), rows.saturating_mul(units), kept),
        block(
            "attend_parts",
            &[rows, op.heads / group, op.split()],
            vec![Some(q), Some(keys), Some(values), Some(state), Some(parts)],
        )?,
        block("join_parts", &[rows, op.heads], vec![Some(parts), Some(state), Some(y)])?,
    ])
}
