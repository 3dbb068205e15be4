//! Places of the largest or smallest elements along an axis: `kernels/movement/top_k.cu`.

use crate::calls::Launch;
use crate::operations::context::Context;
pub(in crate::operations) use crate::operations::no_backward as backward;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::TopK;

/// Elements of a row from which on all warps of a block share it.
const LONG: u64 = 1024;

pub(in crate::operations) fn forward(context: &Context<'_>, op: &TopK) -> Result<Vec<Launch>, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("places of more elements than an axis has"));
    }
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let [outer, length, inner] = op.extents();
    let outer = outer.saturating_mul(context.samples(y));
    let warps = if length < LONG { 1 } else { 8 };
    let entry = if inner == 1 { "top_k_rows" } else { "top_k_maps" };
    let kernel = context.kernel("top_k.cu", entry).with("OUTER", format!("{outer}ull"));
    let kernel = kernel.with("LENGTH", format!("{length}ull")).with("INNER", format!("{inner}ull"));
    let kernel = kernel.with("K", format!("{}ull", op.k)).with("SMALLEST", u8::from(op.smallest)).with("WARPS", warps);
    let arguments = vec![Some(x), Some(y)];
    if inner > 1 {
        return Ok(vec![Launch::elementwise(kernel, outer.saturating_mul(inner), arguments)]);
    }
    let blocks = if warps == 1 { outer.div_ceil(8) } else { outer };
    let blocks = u32::try_from(blocks).map_err(|_| Error::Damaged("there are more rows than a grid has blocks"))?;
    Ok(vec![Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() }])
}
