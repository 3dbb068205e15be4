//! Fusion of convolutions by cuDNN, and of 1x1 convolutions by cuBLASLt, with a Relu after them.

use super::{Fused, are_apart, are_apart_without, dies_by, forward_at, products};
use crate::calls::product::Product;
use crate::calls::{Call, Convolution};
use crate::operations::conv::convolution::library::forward;
use crate::operations::conv::convolution::product;
use crate::operations::{Context, LaunchContext};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::functions::Function;
use gpumem_core::program::{Op, Slot};

/// Fuses a convolution with a bias and the Relu after it. cuDNN has this function only with a bias, and cuBLASLt only without one.
pub(super) fn with_relu(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let Some((operation, Op::Convolution(op), input)) = forward_at(placed, first) else { return Ok(None) };
    let Some((next, Op::Pointwise(activation), output)) = forward_at(placed, first + 1) else { return Ok(None) };
    let is_relu = activation.function == Function::Relu && next.read(Slot::Input(0)) == Some(input);
    // If other operations read the sum, it must be written without the Relu as well.
    if !is_relu || (output != input && !dies_by(placed, input, first + 1)) {
        return Ok(None);
    }
    let context = Context { placed, operation, setting };
    if let Some(product) = product::forward(&context, op, true)? {
        let fused = products::apart(placed, first, 2, Product { d: output, ..product });
        return Ok(fused.map(|product| (2, vec![product.into()])));
    }
    if !setting.cudnn || !op.bias {
        return Ok(None);
    }
    let Some(convolution) = forward(&context, op)? else { return Ok(None) };
    let fused = Convolution { relu: true, ..convolution.writing(output) };
    Ok(apart(placed, first, fused).map(|convolution| (2, vec![convolution.into()])))
}

/// Returns a library's convolution by itself, before the patterns of gpumem's own kernels are tried. Those are shorter only if the library has no
/// algorithm.
pub(super) fn alone(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let Some((operation, Op::Convolution(op), _)) = forward_at(placed, first) else { return Ok(None) };
    let context = Context { placed, operation, setting };
    let call = if setting.cudnn {
        forward(&context, op)?.map(Call::from)
    } else {
        product::forward(&context, op, false)?.map(Call::from)
    };
    Ok(call.map(|call| (1, vec![call])))
}

/// Returns the convolution with its whole workspace, or without any if the second operation of a pair writes to that memory. `None` if the two
/// cannot be fused in either form.
fn apart(placed: &Placed, first: usize, convolution: Convolution) -> Option<Convolution> {
    if are_apart(placed, first, 2) {
        return Some(convolution);
    }
    let unused = placed.program.operations.get(first)?.written(Slot::Workspace)?;
    let without = Convolution { workspace: None, ..convolution };
    are_apart_without(placed, first, 2, Some(unused)).then_some(without)
}
