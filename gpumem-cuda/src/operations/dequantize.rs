//! A weight from its codes and their scales: `kernels/dequantize.cu`.

use super::context::Context;
use crate::calls::Launch;
use gpumem_core::error::Error;
use gpumem_core::number::Coding;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Dequantize;

/// Bytes that a thread writes at a time.
const WIDTH: u64 = 16;

pub(super) fn forward(context: &Context<'_>, op: &Dequantize) -> Result<Vec<Launch>, Error> {
    let (codes, scales) = (context.read(Slot::Input(0))?, context.read(Slot::Input(1))?);
    let w = context.written(Slot::Output)?;
    let count = context.count(w);
    let found = [codes, scales].map(|id| context.elements(id));
    if op.sizes() != Some(found) || op.shape.elements() != Some(count) {
        return Err(Error::Damaged("a weight has other codes or scales than elements"));
    }
    let pack = WIDTH / context.setting.precision.narrow().bytes();
    let kernel = context.kernel("dequantize.cu", "dequantize").with("COUNT", format!("{count}ull"));
    let kernel = kernel.with("ENTRIES", entries(op.coding)).with("PACKED", op.coding.packed());
    let kernel = kernel.with("BLOCK", format!("{}ull", op.coding.block())).with("PACK", pack);
    let arguments = vec![Some(codes), Some(scales), Some(w)];
    Ok(vec![Launch::elementwise(kernel, count.div_ceil(pack), arguments)])
}

/// The entry of each code as the bits of f32, in braces.
fn entries(coding: Coding) -> String {
    let last = u8::MAX >> (8 - coding.bits());
    let entries: Vec<String> = (0..=last).map(|code| format!("{}u", coding.decode(code).to_bits())).collect();
    format!("{{{}}}", entries.join(","))
}
