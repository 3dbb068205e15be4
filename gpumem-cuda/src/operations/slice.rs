//! A part of the rows of a value: `kernels/position_embedding.cu`.

use super::Context;
use super::grid::pack;
use crate::calls::Launch;
use gpumem_core::error::Error;
use gpumem_core::program::ops::Slice;
use gpumem_core::program::{Slot, TensorId};

/// One launch over `elements` elements.
fn launch(
    context: &Context<'_>,
    op: &Slice,
    entry: &'static str,
    elements: impl Fn(u64, u64) -> u64,
    add: u8,
    arguments: Vec<Option<TensorId>>,
) -> Result<Vec<Launch>, Error> {
    let (used, table) = (op.length * op.row(), op.input.elements().unwrap_or(u64::MAX));
    if used > table {
        return Err(Error::Damaged("a part reaches beyond its whole"));
    }
    let kernel = context.kernel("position_embedding.cu", entry).with("USED", format!("{used}ull"));
    let kernel = kernel.with("TABLE", format!("{table}ull")).with("ADD", add);
    // Both are whole numbers of packs, or the kernel takes single elements.
    let pack = pack(context, used).min(pack(context, table));
    Ok(vec![Launch::elementwise(kernel, elements(used, table) / pack, arguments)])
}

pub(super) fn forward(context: &Context<'_>, op: &Slice) -> Result<Vec<Launch>, Error> {
    let (weight, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    launch(context, op, "position_embedding_forward", |used, _| used, 0, vec![Some(weight), Some(y)])
}

pub(super) fn backward(context: &Context<'_>, op: &Slice) -> Result<Vec<Launch>, Error> {
    let (dy, dweight) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let add = context.adds(Slot::InputGradient(0));
    let elements = |used, table| if add == 1 { used } else { table };
    launch(context, op, "position_embedding_backward", elements, add, vec![Some(dy), Some(dweight)])
}
