//! Calls of convolutions by cuDNN. The library has no transposed convolution: its passes are the gradients of a convolution.

use crate::calls::Call;
use crate::calls::convolution::{Convolution, Pass};
use crate::calls::product::{Element, Scratch};
use crate::operations::context::{Context, LaunchContext};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, ChannelOrder, Op, Operation, Slot, Tensor, TensorId, ops};
use gpumem_core::{Format, Precision};

/// The most elements of a tensor for the library, whose offsets are signed 32-bit integers.
const MOST_ELEMENTS: u64 = i32::MAX as u64;

/// True if the library can add the bias, if there is one. For transposed convolutions it compiles engines that do so, in 16 bits and for Ampere or
/// later.
fn adds_bias(op: &ops::Convolution, precision: Precision, capability: (i32, i32)) -> bool {
    !op.transposed || !op.bias || precision.narrow() != Format::F32 && capability >= (8, 0)
}

/// Returns the convolution `y = x * w + b`; `None` if sizes are too large for the library, or if it has no such convolution.
pub(crate) fn forward(context: &Context<'_>, op: &ops::Convolution) -> Result<Option<Convolution>, Error> {
    if !adds_bias(op, context.setting.precision, context.setting.capability) {
        return Ok(None);
    }
    let bias = if op.bias { Some(context.read(Slot::Input(2))?) } else { None };
    let tensors = [context.read(Slot::Input(0))?, context.read(Slot::Input(1))?, context.written(Slot::Output)?];
    let convolution = convolution(context, op, Pass::Forward, tensors)?;
    Ok(convolution.map(|convolution| Convolution { bias, ..convolution }))
}

/// Returns the calls of the gradients that the operation writes; `None` if the library cannot compute them. The gradient of the bias is gpumem's
/// own kernel: one pass over the gradient of the output, with sums in a fixed order.
pub(super) fn backward(context: &Context<'_>, op: &ops::Convolution) -> Result<Option<Vec<Call>>, Error> {
    let dy = context.read(Slot::Gradient)?;
    let mut calls: Vec<Call> = Vec::new();
    if let Some(dw) = context.operation.written(Slot::InputGradient(1)) {
        let tensors = [context.read(Slot::Input(0))?, dw, dy];
        let Some(filter) = convolution(context, op, Pass::BackwardFilter, tensors)? else { return Ok(None) };
        calls.push(Convolution { accumulate: context.adds(Slot::InputGradient(1)) == 1, ..filter }.into());
    }
    calls.extend(super::correlation(context, op, dy)?.bias_gradient(context)?.into_iter().map(Call::from));
    if let Some(dx) = context.operation.written(Slot::InputGradient(0)) {
        let tensors = [dx, context.read(Slot::Input(1))?, dy];
        let Some(data) = convolution(context, op, Pass::BackwardData, tensors)? else { return Ok(None) };
        calls.push(Convolution { accumulate: context.adds(Slot::InputGradient(0)) == 1, ..data }.into());
    }
    Ok(Some(calls))
}

/// Returns the library's pass and tensors for a pass of an operation on x, w and y. A transposed convolution is a convolution with x and y
/// exchanged: its output is that convolution's gradient of the input.
fn in_its_terms(op: &ops::Convolution, pass: Pass, [x, w, y]: [TensorId; 3]) -> (Pass, [TensorId; 3]) {
    match pass {
        _ if !op.transposed => (pass, [x, w, y]),
        Pass::Forward => (Pass::BackwardData, [y, w, x]),
        Pass::BackwardData => (Pass::Forward, [y, w, x]),
        Pass::BackwardFilter => (pass, [y, w, x]),
    }
}

/// Returns the library's convolution for an operation, in its number format and with its workspace. It has no bias and overwrites its result.
/// `None` if the library does not support it.
fn convolution(
    context: &Context<'_>,
    op: &ops::Convolution,
    pass: Pass,
    tensors: [TensorId; 3],
) -> Result<Option<Convolution>, Error> {
    let (pass, [x, w, y]) = in_its_terms(op, pass, tensors);
    let [images, positions] = op.sides();
    let last = channels_last(context, [x, w, y]).filter(|_| is_for_the_library(op));
    // f32 convolutions are described to the library without a layout, so they must have channels first.
    let is_known = |last: &bool| !last || context.setting.precision.narrow() != Format::F32;
    let Some(channels_last) = last.filter(is_known) else { return Ok(None) };
    let LaunchContext { precision, tf32, deterministic, .. } = context.setting;
    // Gradients of weights in f32 for maps in 16 bits are supported on some cards only.
    if context.tensor(w).role.format(precision) != precision.narrow() {
        return Ok(None);
    }
    let divides = |channels: u64| op.groups != 0 && channels.is_multiple_of(op.groups);
    if !divides(op.in_channels) || !divides(op.out_channels) {
        return Err(Error::Damaged("a convolution's groups do not divide its channels"));
    }
    let scratch = |tensor: TensorId| {
        let bytes = context.workspace_bytes();
        (bytes > 0).then_some(Scratch { tensor, bytes })
    };
    let window = &op.window;
    let convolution = Convolution {
        pass,
        batch: context.samples(y),
        in_channels: images.0,
        out_channels: positions.0,
        input: images.1,
        output: positions.1,
        kernel: window.kernel_size,
        stride: window.stride,
        padding: window.padding,
        dilation: window.dilation,
        groups: op.groups,
        x,
        w,
        y,
        bias: None,
        addend: None,
        relu: false,
        accumulate: false,
        element: Element::of(precision),
        tf32: tf32 && precision == Precision::F32,
        // gpumem's own kernels process groups one after the other, so for groups any algorithm of the library is accepted.
        tensor_cores: context.tensor_core_terms() > 0 && op.groups == 1,
        channels_last,
        workspace: context.operation.written(Slot::Workspace).and_then(scratch),
        deterministic,
    };
    let most =
        [window.stride, window.padding, window.dilation].into_iter().flatten().fold(convolution.largest(), u64::max);
    Ok((most <= MOST_ELEMENTS).then_some(convolution))
}

/// Returns true if the tensors have channels last, false if channels first; `None` if they differ, or if one has gaps.
pub(super) fn channels_last(context: &Context<'_>, tensors: [TensorId; 3]) -> Option<bool> {
    let all = |order: ChannelOrder| {
        tensors.iter().all(|&id| {
            let Tensor { shape, layout, .. } = context.tensor(id);
            layout.pitch == 0 && (layout.order == order || shape.is_same_in_both_orders())
        })
    };
    if all(ChannelOrder::ChannelsFirst) { Some(false) } else { all(ChannelOrder::ChannelsLast).then_some(true) }
}

/// True if the library can express the convolution: it pads as much at the end as at the beginning.
fn is_for_the_library(op: &ops::Convolution) -> bool {
    let ops::Window { kernel_size, stride, padding, dilation } = op.window;
    let [(_, images), (_, positions)] = op.sides();
    let windows = |axis: usize| {
        let span = kernel_size[axis].checked_sub(1)?.checked_mul(dilation[axis])?.checked_add(1)?;
        let padded = padding[axis].checked_mul(2)?.checked_add(images[axis])?;
        padded.checked_sub(span)?.checked_div(stride[axis])?.checked_add(1)
    };
    [0, 1].map(windows) == positions.map(Some)
}

/// True if a program has a pass for the library. If the library cannot add the bias of a transposed convolution, only the gradients count.
pub(crate) fn any(placed: &Placed, precision: Precision, capability: (i32, i32)) -> bool {
    let training = placed.program.training;
    let has_pass = |op: &ops::Convolution| is_for_the_library(op) && (training || adds_bias(op, precision, capability));
    let is_convolution = |operation: &Operation| matches!(&operation.action, Action::Run { op: Op::Convolution(op), .. } if has_pass(op));
    placed.program.operations.iter().any(is_convolution)
}
