//! Conv2d through cuDNN, with a Relu that follows in the same pass.

use super::fuse::{are_apart, are_apart_without};
use super::products::dies_by;
use super::{Context, Setting, conv2d};
use crate::convolution::{Convolution, Pass};
use crate::launch::{Call, Launch};
use crate::product::{Element, Scratch};
use gpumem_core::Precision;
use gpumem_core::device::Placed;
use gpumem_core::error::Error;
use gpumem_core::layers::{Conv2d, Layer};
use gpumem_core::program::{Action, Slot, TensorId};

/// Elements of a tensor that the library can count: its offsets are of 32 bits, with a sign.
const MOST_ELEMENTS: u64 = i32::MAX as u64;

/// The own kernel for the gradient of the bias: one pass over the gradient of the output, sums in a fixed order.
const BIAS_GRADIENT: &str = "conv2d_backward_bias";

/// The convolution that an operation is part of, if it is.
fn layer(action: &Action) -> Option<&Conv2d> {
    match action {
        Action::Forward(Layer::Conv2d(layer))
        | Action::BackwardInput(Layer::Conv2d(layer))
        | Action::BackwardParameters(Layer::Conv2d(layer))
        | Action::Backward(Layer::Conv2d(layer)) => Some(layer),
        _ => None,
    }
}

/// Whether there is anything for the library in a program.
pub(crate) fn any(placed: &Placed) -> bool {
    placed.program.operations.iter().any(|operation| layer(&operation.action).is_some())
}

/// The calls of an operation by itself; `None` if it is no convolution that the library can count in.
pub(super) fn calls(context: &Context<'_>) -> Result<Option<Vec<Call>>, Error> {
    let Some(layer) = layer(&context.operation.action) else { return Ok(None) };
    if let Action::Forward(_) = context.operation.action {
        return Ok(forward(context, layer)?.map(|convolution| vec![convolution.into()]));
    }
    backward(context, layer)
}

/// `y = x * w + b`.
fn forward(context: &Context<'_>, layer: &Conv2d) -> Result<Option<Convolution>, Error> {
    let bias = if layer.bias { Some(context.read(Slot::Parameter(1))?) } else { None };
    let tensors = [context.read(Slot::Input(0))?, context.read(Slot::Parameter(0))?, context.written(Slot::Output)?];
    let convolution = convolution(context, layer, Pass::Forward, tensors)?;
    Ok(convolution.map(|convolution| Convolution { bias, ..convolution }))
}

fn backward(context: &Context<'_>, layer: &Conv2d) -> Result<Option<Vec<Call>>, Error> {
    let dy = context.read(Slot::Gradient)?;
    let mut calls: Vec<Call> = Vec::new();
    if let Some(dw) = context.operation.written(Slot::ParameterGradient(0)) {
        let tensors = [context.read(Slot::Input(0))?, dw, dy];
        let Some(filter) = convolution(context, layer, Pass::BackwardFilter, tensors)? else { return Ok(None) };
        calls.push(Convolution { accumulate: context.adds(Slot::ParameterGradient(0)) == 1, ..filter }.into());
    }
    if context.operation.written(Slot::ParameterGradient(1)).is_some() {
        let is_bias = |launch: &Launch| launch.kernel.entry == BIAS_GRADIENT;
        calls.extend(conv2d::backward(context, layer)?.into_iter().filter(is_bias).map(Call::from));
    }
    if let Some(dx) = context.operation.written(Slot::InputGradient(0)) {
        let tensors = [dx, context.read(Slot::Parameter(0))?, dy];
        let Some(data) = convolution(context, layer, Pass::BackwardData, tensors)? else { return Ok(None) };
        calls.push(Convolution { accumulate: context.adds(Slot::InputGradient(0)) == 1, ..data }.into());
    }
    Ok(Some(calls))
}

/// A convolution for an operation: in its number format and with its workspace; without bias, and nothing is added to.
fn convolution(
    context: &Context<'_>,
    layer: &Conv2d,
    pass: Pass,
    [x, w, y]: [TensorId; 3],
) -> Result<Option<Convolution>, Error> {
    let Setting { precision, tf32, deterministic, .. } = context.setting;
    let divides = |channels: u64| layer.groups != 0 && channels.is_multiple_of(layer.groups);
    if !divides(layer.in_channels) || !divides(layer.out_channels) {
        return Err(Error::Damaged("a convolution's groups do not divide its channels"));
    }
    let scratch = |tensor: TensorId| {
        let bytes = context.placed.bytes.get(tensor as usize).copied().unwrap_or(0);
        (bytes > 0).then_some(Scratch { tensor, bytes })
    };
    let convolution = Convolution {
        pass,
        batch: context.samples(y),
        in_channels: layer.in_channels,
        out_channels: layer.out_channels,
        input: layer.input,
        output: layer.output,
        kernel: layer.kernel_size,
        stride: layer.stride,
        padding: layer.padding,
        dilation: layer.dilation,
        groups: layer.groups,
        x,
        w,
        y,
        bias: None,
        relu: false,
        accumulate: false,
        element: Element::of(precision),
        tf32: tf32 && precision == Precision::F32,
        workspace: context.operation.written(Slot::Workspace).and_then(scratch),
        deterministic,
    };
    let most =
        [layer.stride, layer.padding, layer.dilation].into_iter().flatten().fold(convolution.largest(), u64::max);
    Ok((most <= MOST_ELEMENTS).then_some(convolution))
}

/// Conv2d with a bias, and the Relu that follows. Without a bias the library has no such function.
pub(super) fn with_relu(placed: &Placed, first: usize, setting: Setting) -> Result<Option<(usize, Vec<Call>)>, Error> {
    let operations = &placed.program.operations;
    let (Some(operation), Some(next)) = (operations.get(first), operations.get(first + 1)) else { return Ok(None) };
    let (Action::Forward(Layer::Conv2d(layer)), Action::Forward(Layer::Relu(_))) = (&operation.action, &next.action)
    else {
        return Ok(None);
    };
    if !setting.cudnn || !layer.bias {
        return Ok(None);
    }
    let Some(convolution) = forward(&Context { placed, operation, setting }, layer)? else { return Ok(None) };
    let (input, output) = (convolution.y, next.written(Slot::Output));
    let Some(output) = output.filter(|_| next.read(Slot::Input(0)) == Some(input)) else { return Ok(None) };
    // What others read must be written without the Relu as well.
    if output != input && !dies_by(placed, input, first + 1) {
        return Ok(None);
    }
    let fused = Convolution { y: output, relu: true, ..convolution };
    Ok(apart(placed, first, fused).map(|convolution| (2, vec![convolution.into()])))
}

/// Conv2d by itself, before the own kernels are asked for it and what follows: theirs is the shorter way only where the library
/// has none.
pub(super) fn alone(placed: &Placed, first: usize, setting: Setting) -> Result<Option<(usize, Vec<Call>)>, Error> {
    let Some(operation) = placed.program.operations.get(first) else { return Ok(None) };
    if !setting.cudnn || !matches!(operation.action, Action::Forward(Layer::Conv2d(_))) {
        return Ok(None);
    }
    Ok(calls(&Context { placed, operation, setting })?.map(|calls| (1, calls)))
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
