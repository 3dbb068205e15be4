//! Launches of products with a quantized weight: `kernels/matmul/coded_product.cu`, for all sizes.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::matmul::linear::{rows, tiles, with_pitch};
use gpumem_core::error::Error;
use gpumem_core::number::dynamic_8bit::DynamicMap;
use gpumem_core::number::quantized::{MOST, NF4};
use gpumem_core::number::{Coding, double};
use gpumem_core::program::ops::CodedProduct;
use gpumem_core::program::{Slot, TensorId};

/// Returns the launch of `c[rows, columns] = a[rows, depth] b[depth, columns] + bias`. Here b is the quantized weight, stored as `[columns, depth]`
/// if `transposed`.
fn launch(
    context: &Context<'_>,
    op: &CodedProduct,
    sizes: [u64; 3],
    (a, transposed): (TensorId, bool),
    bias: Option<TensorId>,
    (c, add): (TensorId, u8),
) -> Result<Vec<Launch>, Error> {
    let (codes, scales) = (context.read(Slot::Input(1))?, context.read(Slot::Input(2))?);
    if op.sizes() != Some([codes, scales].map(|id| context.elements(id))) {
        return Err(Error::Damaged("a weight has other codes or scales than elements"));
    }
    let kernel = context.product_kernel("coded_product.cu", "coded_product");
    let kernel = [("A_ROW", a), ("C_ROW", c)]
        .into_iter()
        .fold(kernel, |kernel, (name, id)| with_pitch(context, kernel, name, id));
    let (kernel, blocks) = tiles(with_coding(kernel, op.coding), 1, sizes, [false, transposed], (bias.is_some(), add))?;
    let arguments = vec![Some(a), Some(codes), Some(scales), bias, Some(c)];
    Ok(vec![Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() }])
}

/// Adds the constants of a quantization to a kernel.
fn with_coding(kernel: Kernel, coding: Coding) -> Kernel {
    let kernel = kernel.with("PACKED", coding.packed()).with("BLOCK", format!("{}ull", coding.block()));
    let kernel = match coding {
        Coding::Int8 => kernel.with("MOST", format!("{MOST:?}f")),
        Coding::Nf4 | Coding::Nf4Double => kernel.with("ENTRIES", table(&NF4)),
    };
    if !coding.is_double() {
        return kernel;
    }
    let kernel = kernel.with("SCALE_MAP", table(DynamicMap::SIGNED.entries()));
    kernel.with("SCALES", format!("{}ull", double::BLOCK)).with("SCALE_WORDS", format!("{}ull", double::WORDS))
}

/// Returns the numbers of a table as the bits of f32 in braces.
fn table(entries: &[f32]) -> String {
    let entries: Vec<String> = entries.iter().map(|entry| format!("{}u", entry.to_bits())).collect();
    format!("{{{}}}", entries.join(","))
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &CodedProduct) -> Result<Vec<Launch>, Error> {
    let product = &op.product;
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let bias = if product.bias { Some(context.read(Slot::Input(CodedProduct::BIAS))?) } else { None };
    let sizes = [rows(context, y, product.out_features)?, product.out_features, product.in_features];
    launch(context, op, sizes, (x, !product.transposed), bias, (y, 0))
}

/// Returns the launch of the gradient of x.
pub(in crate::operations) fn backward(context: &Context<'_>, op: &CodedProduct) -> Result<Vec<Launch>, Error> {
    let product = &op.product;
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let sizes = [rows(context, dy, product.out_features)?, product.in_features, product.out_features];
    launch(context, op, sizes, (dy, product.transposed), None, (dx, context.adds(Slot::InputGradient(0))))
}
