//! Calls of products with a weight by cuBLASLt.

use super::{column_sums, rows, weight};
use crate::calls::Call;
use crate::calls::product::{Element, Epilogue, Factor, Product, Scratch};
use crate::operations::context::{Context, LaunchContext};
use crate::operations::grid::small;
use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::program::{Slot, TensorId, ops};

/// Returns the calls of the gradients that the operation writes.
pub(super) fn backward(context: &Context<'_>, op: &ops::Product) -> Result<Vec<Call>, Error> {
    let mut calls: Vec<Call> = Vec::new();
    if context.operation.written(Slot::InputGradient(0)).is_some() {
        calls.push(input_gradient(context, op)?.into());
    }
    if context.operation.written(Slot::InputGradient(1)).is_some() {
        calls.push(weight_gradient(context, op)?.into());
    }
    if let Some(sums) = context.operation.written(Slot::InputGradient(2)) {
        let dy = context.read(Slot::Gradient)?;
        let rows = rows(context, dy, op.out_features)?;
        calls.push(column_sums(context, rows, op.out_features, dy, sums)?.into());
    }
    Ok(calls)
}

/// Returns `d[rows, columns] = a[rows, depth] b[depth, columns]` for an operation, in its number format and with its workspace.
fn product(context: &Context<'_>, sizes: [u64; 3], a: Factor, b: Factor, d: TensorId) -> Result<Product, Error> {
    for size in sizes {
        small(size)?;
    }
    let LaunchContext { precision, tf32, deterministic, .. } = context.setting;
    let bytes = context.workspace_bytes();
    let scratch = |tensor: TensorId| (bytes > 0).then_some(Scratch { tensor, bytes });
    Ok(Product {
        tf32: tf32 && precision == Precision::F32,
        workspace: context.operation.written(Slot::Workspace).and_then(scratch),
        deterministic,
        ..Product::row_major(sizes, a, b, d, Element::of(precision))
            .with_pitches([a.tensor, b.tensor, d].map(|id| context.pitch(id)))
    })
}

/// Returns `d = a b + bias`, added to its tensor if `adds`.
pub(super) fn product_of(
    context: &Context<'_>,
    sizes: [u64; 3],
    [a, b]: [Factor; 2],
    bias: Option<TensorId>,
    (d, adds): (TensorId, bool),
) -> Result<Product, Error> {
    let epilogue = bias.map_or(Epilogue::None, Epilogue::Bias);
    Ok(Product { epilogue, c: adds.then_some(d), ..product(context, sizes, a, b, d)? })
}

/// Returns `y = x W^T + b`.
pub(crate) fn forward(context: &Context<'_>, op: &ops::Product) -> Result<Product, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let rows = rows(context, y, op.out_features)?;
    let sizes = [rows, op.out_features, op.in_features];
    let epilogue = if op.bias { Epilogue::Bias(context.read(Slot::Input(2))?) } else { Epilogue::None };
    Ok(Product { epilogue, ..product(context, sizes, Factor::plain(x), weight(context, op)?.t(), y)? })
}

/// Returns `dx = dy W`, added to its tensor if the operation says so.
pub(crate) fn input_gradient(context: &Context<'_>, op: &ops::Product) -> Result<Product, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let rows = rows(context, dy, op.out_features)?;
    let sizes = [rows, op.in_features, op.out_features];
    let c = (context.adds(Slot::InputGradient(0)) == 1).then_some(dx);
    Ok(Product { c, ..product(context, sizes, Factor::plain(dy), weight(context, op)?, dx)? })
}

/// Returns `dW = dy^T x`, or `x^T dy` if W is stored transposed, added to its tensor if the operation says so.
pub(crate) fn weight_gradient(context: &Context<'_>, op: &ops::Product) -> Result<Product, Error> {
    let ops::Product { in_features, out_features, .. } = *op;
    let (dy, x) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?);
    let dw = context.written(Slot::InputGradient(1))?;
    let rows = rows(context, dy, out_features)?;
    let (dy, x) = (Factor::plain(dy), Factor::plain(x));
    let product = if op.transposed {
        product(context, [in_features, out_features, rows], x.t(), dy, dw)?
    } else {
        product(context, [out_features, in_features, rows], dy.t(), x, dw)?
    };
    let c = (context.adds(Slot::InputGradient(1)) == 1).then_some(dw);
    Ok(Product { c, ..product })
}
