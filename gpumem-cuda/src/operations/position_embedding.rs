//! Rows of a table, one for each position: `kernels/position_embedding.cu`.

use super::Context;
use super::batch_norm2d::pack;
use crate::launch::Launch;
use gpumem_core::error::Error;
use gpumem_core::layers::PositionEmbedding;
use gpumem_core::program::{Slot, TensorId};

/// One launch over `elements` elements.
fn launch(
    context: &Context<'_>,
    layer: &PositionEmbedding,
    entry: &'static str,
    elements: impl Fn(u64, u64) -> u64,
    add: u8,
    arguments: Vec<Option<TensorId>>,
) -> Result<Vec<Launch>, Error> {
    if layer.steps > layer.positions {
        return Err(Error::Damaged("a position embedding has fewer positions than its input has steps"));
    }
    let (used, table) = (layer.steps * layer.embedding_dim, layer.positions * layer.embedding_dim);
    let kernel = context.kernel("position_embedding.cu", entry).with("USED", format!("{used}ull"));
    let kernel = kernel.with("TABLE", format!("{table}ull")).with("ADD", add);
    // Both are whole numbers of packs, or the kernel takes single elements.
    let pack = pack(context, used).min(pack(context, table));
    Ok(vec![Launch::elementwise(kernel, elements(used, table) / pack, arguments)])
}

pub(super) fn forward(context: &Context<'_>, layer: &PositionEmbedding) -> Result<Vec<Launch>, Error> {
    let (weight, y) = (context.read(Slot::Parameter(0))?, context.written(Slot::Output)?);
    launch(context, layer, "position_embedding_forward", |used, _| used, 0, vec![Some(weight), Some(y)])
}

pub(super) fn backward(context: &Context<'_>, layer: &PositionEmbedding) -> Result<Vec<Launch>, Error> {
    let (dy, dweight) = (context.read(Slot::Gradient)?, context.written(Slot::ParameterGradient(0))?);
    let add = context.adds(Slot::ParameterGradient(0));
    let elements = |used, table| if add == 1 { used } else { table };
    launch(context, layer, "position_embedding_backward", elements, add, vec![Some(dy), Some(dweight)])
}
