//! Fusion of products by cuBLASLt with bias, Relu, Gelu and their gradients, and a sum.

use super::sum::added;
use super::{Fused, are_apart, are_apart_without, dies_by, forward_at};
use crate::calls::Call;
use crate::calls::product::{Auxiliary, Epilogue, Product};
use crate::operations::matmul::linear::library::{forward, input_gradient, weight_gradient};
use crate::operations::{Context, LaunchContext, calls};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::functions::Function;
use gpumem_core::program::{Action, Op, Operation, Pass, Slot, TensorId, ops};

/// Returns the product whose backward pass operation `index` is, if products are computed by the library; else `None`.
fn backward_at<'a>(
    placed: &'a Placed,
    index: usize,
    setting: LaunchContext,
) -> Option<(Context<'a>, &'a ops::Product)> {
    let operation = placed.program.operations.get(index).filter(|_| setting.library)?;
    let Action::Run { op: Op::Product(op), pass: Pass::Backward } = &operation.action else { return None };
    Some((Context { placed, operation, setting }, op))
}

/// Returns the product with its whole workspace, or without any if the group writes to that memory. `None` if the group cannot be fused in either
/// form.
pub(super) fn apart(placed: &Placed, first: usize, count: usize, product: Product) -> Option<Product> {
    if are_apart(placed, first, count) {
        return Some(product);
    }
    // Saving a pass over memory is worth more than scratch memory.
    let unused = placed.program.operations.get(first)?.written(Slot::Workspace)?;
    let without = Product { workspace: None, ..product };
    are_apart_without(placed, first, count, Some(unused)).then_some(without)
}

/// Returns a GELU's input for an epilogue; `None` if the library does not accept its leading dimension.
fn auxiliary(tensor: TensorId, product: &Product) -> Option<Auxiliary> {
    product.m.is_multiple_of(Auxiliary::LD).then_some(Auxiliary { tensor, ld: product.m })
}

/// Fuses a product with the Relu or Gelu after it. The exact Gelu is not fused: the library has the approximation only.
///
/// Relu's backward pass uses its output as its mask: the library's own mask, of bits, is not part of the memory plan.
pub(super) fn with_activation(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let Some((operation, Op::Product(op), input)) = forward_at(placed, first) else { return Ok(None) };
    let Some((next, Op::Pointwise(activation), output)) = forward_at(placed, first + 1) else { return Ok(None) };
    if !setting.library || next.read(Slot::Input(0)) != Some(input) {
        return Ok(None);
    }
    let product = forward(&Context { placed, operation, setting }, op)?;
    let bias = product.epilogue.vector();
    let dies = output == input || dies_by(placed, input, first + 1);
    let epilogue = match activation.function {
        Function::Relu if dies => Epilogue::Relu { bias },
        Function::GeluTanh if dies => Epilogue::Gelu { bias, kept: None },
        Function::GeluTanh => match auxiliary(input, &product) {
            Some(kept) => Epilogue::Gelu { bias, kept: Some(kept) },
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let product = apart(placed, first, 2, Product { d: output, epilogue, ..product });
    Ok(product.map(|product| (2, vec![product.into()])))
}

/// Fuses a product with the sum after it, if the product computes one of the sum's two branches. The other branch is its addend, and the sum is
/// rounded once. If the sum overwrites a factor of the product, the two are not fused.
pub(super) fn with_sum(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let Some((operation, Op::Product(op), own)) = forward_at(placed, first) else { return Ok(None) };
    let Some((addend, output)) = added(placed, first + 1, own).filter(|_| setting.library) else { return Ok(None) };
    if operation.reads.iter().any(|read| read.tensor == output) {
        return Ok(None);
    }
    let product = Product { c: Some(addend), d: output, ..forward(&Context { placed, operation, setting }, op)? };
    Ok(apart(placed, first, 2, product).map(|product| (2, vec![product.into()])))
}

/// Fuses the gradient of a product's input with that of the approximate Gelu before it. Updates of weights between the two, scheduled as early as
/// possible, run after both.
pub(super) fn with_activation_gradient(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let Some((context, op)) = backward_at(placed, first, setting) else { return Ok(None) };
    let operations = &placed.program.operations;
    let is_update = |operation: &&Operation| matches!(operation.action, Action::Update);
    let updates = operations.iter().skip(first + 1).take_while(is_update).count();
    let (last, count) = (first + 1 + updates, updates + 2);
    let Some(next) = operations.get(last) else { return Ok(None) };
    let Action::Run { op: Op::Pointwise(activation), pass: Pass::Backward } = &next.action else { return Ok(None) };
    if activation.function != Function::GeluTanh || of_input_and_weight(&context) != [true, false] {
        return Ok(None);
    }
    let product = input_gradient(&context, op)?;
    let gelu = Context { operation: next, ..context };
    if next.read(Slot::Gradient) != Some(product.d) || gelu.adds(Slot::InputGradient(0)) == 1 {
        return Ok(None);
    }
    // The library chooses its algorithm without knowing of an addend, and its documentation does not promise that this epilogue takes one.
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
        calls.extend(self::calls(&Context { operation, ..context })?);
    }
    Ok(Some((count, calls)))
}

/// Returns one product for the gradients of weight and bias. The gradient of the bias overwrites its tensor; the library cannot add to it.
pub(super) fn with_bias_gradient(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let Some((context, op)) = backward_at(placed, first, setting) else { return Ok(None) };
    let Some(sums) = context.operation.written(Slot::InputGradient(2)) else { return Ok(None) };
    if op.transposed || context.adds(Slot::InputGradient(2)) == 1 || of_input_and_weight(&context) != [false, true] {
        return Ok(None);
    }
    let product = weight_gradient(&context, op)?;
    // dW = dy^T x makes dy the library's B, with dW's rows as columns of D.
    let epilogue = Epilogue::BiasGradientB(sums);
    Ok(Some((1, vec![Product { epilogue, ..product }.into()])))
}

/// Returns true for each of input and weight whose gradient is wanted. A frozen weight may leave only the gradient of a bias.
fn of_input_and_weight(context: &Context<'_>) -> [bool; 2] {
    [0, 1].map(|input| context.operation.written(Slot::InputGradient(input)).is_some())
}
