//! Matrix products of Linear and Tied through cuBLASLt, and what runs in the same pass: bias, Relu, Gelu and their gradients.

use super::fuse::{are_apart, are_apart_without};
use super::linear::{Affine, column_sums, small};
use super::{Context, Setting};
use crate::launch::Call;
use crate::product::{Auxiliary, Element, Epilogue, Factor, Product, Scratch};
use gpumem_core::Precision;
use gpumem_core::device::Placed;
use gpumem_core::error::Error;
use gpumem_core::layers::Layer;
use gpumem_core::program::{Action, Operation, Slot, TensorId};

/// The calls of an operation by itself; `None` if its layer is not one of matrix products.
pub(super) fn calls(context: &Context<'_>) -> Result<Option<Vec<Call>>, Error> {
    let Some(affine) = Affine::of(&context.operation.action) else { return Ok(None) };
    if matches!(context.operation.action, Action::Forward(_)) {
        return Ok(Some(vec![forward(context, &affine)?.into()]));
    }
    let mut calls: Vec<Call> = Vec::new();
    if context.operation.written(Slot::InputGradient(0)).is_some() {
        calls.push(input_gradient(context, &affine)?.into());
    }
    if context.operation.written(Slot::ParameterGradient(0)).is_some() {
        calls.push(weight_gradient(context, &affine)?.into());
    }
    if let Some(sums) = context.operation.written(Slot::ParameterGradient(1)) {
        let dy = context.read(Slot::Gradient)?;
        let rows = context.elements(dy) / affine.out_features;
        calls.push(column_sums(context, rows, affine.out_features, dy, sums)?.into());
    }
    Ok(Some(calls))
}

/// `d[rows, columns] = a[rows, depth] b[depth, columns]` for an operation: in its number format and with its workspace.
fn product(context: &Context<'_>, sizes: [u64; 3], a: Factor, b: Factor, d: TensorId) -> Result<Product, Error> {
    for size in sizes {
        small(size)?;
    }
    let Setting { precision, tf32, deterministic, .. } = context.setting;
    let scratch = |tensor: TensorId| {
        let bytes = context.placed.bytes.get(tensor as usize).copied().unwrap_or(0);
        (bytes > 0).then_some(Scratch { tensor, bytes })
    };
    Ok(Product {
        tf32: tf32 && precision == Precision::F32,
        workspace: context.operation.written(Slot::Workspace).and_then(scratch),
        deterministic,
        ..Product::row_major(sizes, a, b, d, Element::of(precision))
    })
}

/// `y = x W^T + b`.
fn forward(context: &Context<'_>, affine: &Affine) -> Result<Product, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let rows = context.elements(y) / affine.out_features;
    let sizes = [rows, affine.out_features, affine.in_features];
    let epilogue = if affine.bias { Epilogue::Bias(context.read(Slot::Parameter(1))?) } else { Epilogue::None };
    Ok(Product { epilogue, ..product(context, sizes, Factor::plain(x), affine.weight(context)?.t(), y)? })
}

/// `dx = dy W`, added to what is there if the operation says so.
fn input_gradient(context: &Context<'_>, affine: &Affine) -> Result<Product, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let rows = context.elements(dy) / affine.out_features;
    let sizes = [rows, affine.in_features, affine.out_features];
    let c = (context.adds(Slot::InputGradient(0)) == 1).then_some(dx);
    Ok(Product { c, ..product(context, sizes, Factor::plain(dy), affine.weight(context)?, dx)? })
}

/// `dW = dy^T x`, or `x^T dy` where W is stored transposed, added to what is there if the operation says so.
fn weight_gradient(context: &Context<'_>, affine: &Affine) -> Result<Product, Error> {
    let Affine { in_features, out_features, .. } = *affine;
    let (dy, x) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?);
    let dw = context.written(Slot::ParameterGradient(0))?;
    let rows = context.elements(dy) / out_features;
    let (dy, x) = (Factor::plain(dy), Factor::plain(x));
    let product = if affine.transposed {
        product(context, [in_features, out_features, rows], x.t(), dy, dw)?
    } else {
        product(context, [out_features, in_features, rows], dy.t(), x, dw)?
    };
    let c = (context.adds(Slot::ParameterGradient(0)) == 1).then_some(dw);
    Ok(Product { c, ..product })
}

/// An affine operation, where products go to the library.
fn affine_at<'a>(placed: &'a Placed, index: usize, setting: Setting) -> Option<(Context<'a>, Affine)> {
    let operation = placed.program.operations.get(index).filter(|_| setting.library)?;
    Some((Context { placed, operation, setting }, Affine::of(&operation.action)?))
}

/// Whether nothing reads `tensor` after operation `last`: a pass that fuses the operations up to that one need not write it.
pub(super) fn dies_by(placed: &Placed, tensor: TensorId, last: usize) -> bool {
    tensor != placed.program.result && placed.program.tensor(tensor).last as usize <= last
}

/// The product with the whole workspace, or without one where the plan placed there what the group writes; `None` if the
/// group cannot run as one in either way.
fn apart(placed: &Placed, first: usize, count: usize, product: Product) -> Option<Product> {
    if are_apart(placed, first, count) {
        return Some(product);
    }
    // A pass over memory that is saved is worth more than scratch memory.
    let unused = placed.program.operations.get(first)?.written(Slot::Workspace)?;
    let without = Product { workspace: None, ..product };
    are_apart_without(placed, first, count, Some(unused)).then_some(without)
}

/// A GELU's input for an epilogue, where the library takes its leading dimension.
fn auxiliary(tensor: TensorId, product: &Product) -> Option<Auxiliary> {
    product.m.is_multiple_of(Auxiliary::LD).then_some(Auxiliary { tensor, ld: product.m })
}

/// Linear or Tied, and the Relu or Gelu that follows. The exact Gelu stays apart: the library has the approximation only.
/// Relu's mask for the backward pass is its output: the library's own, of bits, has no place in the plan.
pub(super) fn with_activation(
    placed: &Placed,
    first: usize,
    setting: Setting,
) -> Result<Option<(usize, Vec<Call>)>, Error> {
    let Some((context, affine)) = affine_at(placed, first, setting) else { return Ok(None) };
    let (Action::Forward(_), Some(next)) = (&context.operation.action, placed.program.operations.get(first + 1)) else {
        return Ok(None);
    };
    let product = forward(&context, &affine)?;
    let (input, output) = (product.d, next.written(Slot::Output));
    let (Action::Forward(layer), Some(output)) =
        (&next.action, output.filter(|_| next.read(Slot::Input(0)) == Some(input)))
    else {
        return Ok(None);
    };
    let bias = product.epilogue.vector();
    let dies = output == input || dies_by(placed, input, first + 1);
    let epilogue = match layer {
        Layer::Relu(_) if dies => Epilogue::Relu { bias },
        Layer::Gelu(layer) if layer.tanh && dies => Epilogue::Gelu { bias, kept: None },
        Layer::Gelu(layer) if layer.tanh => match auxiliary(input, &product) {
            Some(kept) => Epilogue::Gelu { bias, kept: Some(kept) },
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let product = apart(placed, first, 2, Product { d: output, epilogue, ..product });
    Ok(product.map(|product| (2, vec![product.into()])))
}

/// The gradient of a layer's input, and that of the approximate Gelu before it. Updates of the layer's parameters, which come
/// in between where each is made as soon as it can be, run after both.
pub(super) fn with_activation_gradient(
    placed: &Placed,
    first: usize,
    setting: Setting,
) -> Result<Option<(usize, Vec<Call>)>, Error> {
    let Some((context, affine)) = affine_at(placed, first, setting) else { return Ok(None) };
    let operations = &placed.program.operations;
    let is_update = |operation: &&Operation| matches!(operation.action, Action::Update);
    let updates = operations.iter().skip(first + 1).take_while(is_update).count();
    let (last, count) = (first + 1 + updates, updates + 2);
    let (Action::BackwardInput(_), Some(next)) = (&context.operation.action, operations.get(last)) else {
        return Ok(None);
    };
    let product = input_gradient(&context, &affine)?;
    let Action::BackwardInput(Layer::Gelu(layer)) = &next.action else { return Ok(None) };
    let gelu = Context { operation: next, ..context };
    if !layer.tanh || next.read(Slot::Gradient) != Some(product.d) || gelu.adds(Slot::InputGradient(0)) == 1 {
        return Ok(None);
    }
    // The library chooses its algorithm before it hears of an addend; nobody says that it takes one with this epilogue.
    if product.c.is_some() {
        return Ok(None);
    }
    let (input, output) = (gelu.read(Slot::Input(0))?, gelu.written(Slot::InputGradient(0))?);
    let untouched = |tensor: TensorId| ![product.d, input, output].contains(&tensor);
    let between = &operations[first + 1..last];
    let dies = output == product.d || dies_by(placed, product.d, last);
    let Some(input) = auxiliary(input, &product) else { return Ok(None) };
    if !dies || !between.iter().flat_map(Operation::tensors).all(untouched) {
        return Ok(None);
    }
    let epilogue = Epilogue::GeluGradient { input, bias_gradient: None };
    let Some(product) = apart(placed, first, count, Product { d: output, epilogue, ..product }) else {
        return Ok(None);
    };
    let mut calls = vec![Call::from(product)];
    for operation in between {
        calls.extend(super::calls(&Context { operation, ..context })?);
    }
    Ok(Some((count, calls)))
}

/// The gradients of weight and bias in one product. That of the bias is overwritten, never added to.
pub(super) fn with_bias_gradient(
    placed: &Placed,
    first: usize,
    setting: Setting,
) -> Result<Option<(usize, Vec<Call>)>, Error> {
    let Some((context, affine)) = affine_at(placed, first, setting) else { return Ok(None) };
    let (Action::BackwardParameters(_), Some(sums)) =
        (&context.operation.action, context.operation.written(Slot::ParameterGradient(1)))
    else {
        return Ok(None);
    };
    if affine.transposed || context.adds(Slot::ParameterGradient(1)) == 1 {
        return Ok(None);
    }
    let product = weight_gradient(&context, &affine)?;
    // Only Linear has a bias, and its dW = dy^T x makes dy the library's B, with dW's rows as columns of D.
    let epilogue = Epilogue::BiasGradientB(sums);
    Ok(Some((1, vec![Product { epilogue, ..product }.into()])))
}
