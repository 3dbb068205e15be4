//! Convolutions through cuDNN, with a Relu that follows in the same pass.

use super::{Fused, are_apart, are_apart_without, dies_by, forward_at};
use crate::calls::Convolution;
use crate::operations::convolution::library::forward;
use crate::operations::{Context, Setting};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::function::Function;
use gpumem_core::program::{Op, Slot};

/// A convolution with a bias, and the Relu that follows. Without a bias the library has no such function.
pub(super) fn with_relu(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let Some((operation, Op::Convolution(op), input)) = forward_at(placed, first) else { return Ok(None) };
    let Some((next, Op::Pointwise(activation), output)) = forward_at(placed, first + 1) else { return Ok(None) };
    let is_relu = activation.function == Function::Relu && next.read(Slot::Input(0)) == Some(input);
    if !setting.cudnn || !op.bias || !is_relu {
        return Ok(None);
    }
    let Some(convolution) = forward(&Context { placed, operation, setting }, op)? else { return Ok(None) };
    // What others read must be written without the Relu as well.
    if output != input && !dies_by(placed, input, first + 1) {
        return Ok(None);
    }
    let fused = Convolution { y: output, relu: true, ..convolution };
    Ok(apart(placed, first, fused).map(|convolution| (2, vec![convolution.into()])))
}

/// A convolution by itself, before the own kernels are asked for it and what follows: theirs is the shorter way only where the library
/// has none.
pub(super) fn alone(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let Some((operation, Op::Convolution(op), _)) = forward_at(placed, first) else { return Ok(None) };
    if !setting.cudnn {
        return Ok(None);
    }
    let convolution = forward(&Context { placed, operation, setting }, op)?;
    Ok(convolution.map(|convolution| (1, vec![convolution.into()])))
}

/// The convolution with the whole workspace, or without one where the plan placed there what the second of two operations
/// writes; `None` if they cannot run as one in either way.
fn apart(placed: &Placed, first: usize, convolution: Convolution) -> Option<Convolution> {
    if are_apart(placed, first, 2) {
        return Some(convolution);
    }
    let unused = placed.program.operations.get(first)?.written(Slot::Workspace)?;
    let without = Convolution { workspace: None, ..convolution };
    are_apart_without(placed, first, 2, Some(unused)).then_some(without)
}
