//! Functions of one number: `kernels/activation.cu`.

use super::Context;
use crate::calls::{Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::function::{Function, Kept};
use gpumem_core::program::ops::Pointwise;

/// The function's name in the kernel.
fn name(function: Function) -> &'static str {
    match function {
        Function::Relu => "RELU",
        Function::Relu6 => "RELU6",
        Function::LeakyRelu => "LEAKY_RELU",
        Function::Gelu => "GELU",
        Function::GeluTanh => "GELU_TANH",
        Function::Silu => "SILU",
        Function::Sigmoid => "SIGMOID",
        Function::Tanh => "TANH",
        Function::Exp | Function::Scale => "TO_DO",
    }
}

fn kernel(context: &Context<'_>, op: &Pointwise, entry: &'static str, count: u64, add: u8) -> Kernel {
    let kernel = context.kernel("activation.cu", entry).with("COUNT", format!("{count}ull"));
    let slope = op.arguments.first().copied().unwrap_or(0.0);
    kernel.with("FUNCTION", name(op.function)).with_float("SLOPE", slope).with("ADD", add)
}

pub(super) fn forward(context: &Context<'_>, op: &Pointwise) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let count = context.elements(y);
    let kernel = kernel(context, op, "activation_forward", count, 0);
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(x), Some(y)])])
}

pub(super) fn backward(context: &Context<'_>, op: &Pointwise) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let kept = match op.function.row().kept {
        Kept::Input => context.read(Slot::Input(0))?,
        Kept::Output => context.read(Slot::Output)?,
        Kept::Nothing => return Err(Error::Damaged("to do")),
    };
    let count = context.elements(dx);
    let kernel = kernel(context, op, "activation_backward", count, context.adds(Slot::InputGradient(0)));
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(dy), Some(kept), Some(dx)])])
}
