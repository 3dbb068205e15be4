//! Launches that slice a value along an axis: `kernels/movement/slice.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
use crate::operations::grid::pack;
use gpumem_core::error::Error;
use gpumem_core::program::ops::Slice;
use gpumem_core::program::{Slot, TensorId};

/// Returns one launch for `samples` samples, over all their elements or over their slices. Each index before the axis counts as a sample for the
/// kernel.
fn launch(
    context: &Context<'_>,
    op: &Slice,
    entry: &'static str,
    (samples, over_all): (u64, bool),
    add: u8,
    arguments: Vec<Option<TensorId>>,
) -> Result<Vec<Launch>, Error> {
    let samples = samples.saturating_mul(op.outer());
    let whole = op.rows().saturating_mul(op.row());
    let beyond = Error::Damaged("a part reaches beyond its whole");
    let [start, part] = [op.start, op.length].map(|rows| rows.checked_mul(op.row()));
    let (Some(start), Some(part)) = (start, part) else { return Err(beyond) };
    if start.checked_add(part).is_none_or(|end| end > whole) {
        return Err(beyond);
    }
    let kernel = context.kernel("slice.cu", entry).with("SAMPLES", format!("{samples}ull"));
    let kernel = kernel.with("WHOLE", format!("{whole}ull")).with("START", format!("{start}ull"));
    let kernel = kernel.with("PART", format!("{part}ull")).with("ADD", add);
    // All three must be multiples of a pack; otherwise the kernel moves single elements.
    let pack = [whole, start, part].map(|length| pack(context, length)).into_iter().min().unwrap_or(1);
    let elements = samples.saturating_mul(if over_all { whole } else { part });
    Ok(vec![Launch::elementwise(kernel, elements / pack, arguments)])
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Slice) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    launch(context, op, "slice", (context.samples(y), false), 0, vec![Some(x), Some(y)])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Slice) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let add = context.adds(Slot::InputGradient(0));
    launch(context, op, "slice_backward", (context.samples(dx), add == 0), add, vec![Some(dy), Some(dx)])
}
