//! Functions of one number: `kernels/activation.cu`.

use super::Context;
use crate::launch::{Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::layers::Layer;
use gpumem_core::program::Slot;

/// Which function, and the tensor that its backward pass reads.
struct Function {
    name: &'static str,
    slope: f64,
    kept: Slot,
}

/// The function that a layer computes.
fn function(layer: &Layer) -> Result<Function, Error> {
    let of = |name, kept| Ok(Function { name, slope: 0.0, kept });
    match layer {
        Layer::Relu(_) => of("RELU", Slot::Output),
        Layer::Relu6(_) => of("RELU6", Slot::Output),
        Layer::LeakyRelu(layer) => Ok(Function { name: "LEAKY_RELU", slope: layer.negative_slope, kept: Slot::Output }),
        Layer::Gelu(layer) => of(if layer.tanh { "GELU_TANH" } else { "GELU" }, Slot::Input(0)),
        Layer::Silu(_) => of("SILU", Slot::Input(0)),
        Layer::Sigmoid(_) => of("SIGMOID", Slot::Output),
        Layer::Tanh(_) => of("TANH", Slot::Output),
        _ => Err(super::NO_OPERATION),
    }
}

fn kernel(context: &Context<'_>, entry: &'static str, function: &Function, count: u64, add: u8) -> Kernel {
    let kernel = context.kernel("activation.cu", entry).with("COUNT", format!("{count}ull"));
    kernel.with("FUNCTION", function.name).with_float("SLOPE", function.slope).with("ADD", add)
}

pub(super) fn forward(context: &Context<'_>, layer: &Layer) -> Result<Vec<Launch>, Error> {
    let function = function(layer)?;
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let count = context.elements(y);
    let kernel = kernel(context, "activation_forward", &function, count, 0);
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(x), Some(y)])])
}

pub(super) fn backward(context: &Context<'_>, layer: &Layer) -> Result<Vec<Launch>, Error> {
    let function = function(layer)?;
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let kept = context.read(function.kept)?;
    let count = context.elements(dx);
    let kernel = kernel(context, "activation_backward", &function, count, context.adds(Slot::InputGradient(0)));
    Ok(vec![Launch::elementwise(kernel, count, vec![Some(dy), Some(kept), Some(dx)])])
}
