//! 2-D convolution, `y[b, o, i] = bias[o] + sum over c, k of weight[o, c, k] * x[b, c, at(i, k)]`.
//!
//! Backward: `dx` scatters `dy` through the weight; `dweight` multiplies `dy` with the unfolded `x`; `dbias` sums `dy`.

use super::correlation::{Correlation, channel_sums};
use super::window::Window;
use super::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::layers::Conv2d;
use gpumem_core::program::Slot;

/// Lengths of a convolution's tensors, transposed or not.
pub(super) struct Lengths {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) weight: usize,
    pub(super) bias: usize,
}

/// The correlation of a layer whose windows slide over maps of `channels[0]` channels and have positions on maps of
/// `channels[1]` channels.
pub(super) fn correlation(window: Window, groups: u64, channels: [u64; 2]) -> Result<Correlation, Error> {
    if groups == 0 || channels.iter().any(|channels| channels % groups != 0) {
        return Err(Error::Damaged("a convolution's groups do not divide its channels"));
    }
    let [images, positions] = channels.map(|channels| (channels / groups) as usize);
    Ok(Correlation { window, groups: groups as usize, images, positions })
}

fn resolve(layer: &Conv2d, batch: u64) -> Result<(Correlation, Lengths), Error> {
    let maps = [layer.input, layer.output];
    let window = Window::new(maps, layer.kernel_size, layer.stride, layer.padding, layer.dilation)?;
    let correlation = correlation(window, layer.groups, [layer.in_channels, layer.out_channels])?;
    let [tall, wide] = layer.kernel_size;
    let lengths = Lengths {
        input: count(&[batch, layer.in_channels, layer.input[0], layer.input[1]]),
        output: count(&[batch, layer.out_channels, layer.output[0], layer.output[1]]),
        weight: count(&[layer.out_channels, layer.in_channels / layer.groups, tall, wide]),
        bias: count(&[layer.out_channels]),
    };
    Ok((correlation, lengths))
}

/// `y` from `x`, the weight and the bias.
pub(super) fn forward(layer: &Conv2d, operands: &mut Operands<'_>) -> Bound {
    let (correlation, lengths) = resolve(layer, operands.batch())?;
    let input = operands.source(Slot::Input(0), lengths.input)?;
    let weight = operands.source(Slot::Parameter(0), lengths.weight)?;
    let bias = operands.source_if(layer.bias, Slot::Parameter(1), lengths.bias)?;
    let mut output = operands.target(Slot::Output, lengths.output)?;
    kernel(move |_| {
        let bias = bias.as_ref().map(|bias| bias.get());
        correlation.gather(input.get(), weight.get(), bias, output.get(), false);
    })
}

/// The gradients that the operation writes.
pub(super) fn backward(layer: &Conv2d, operands: &mut Operands<'_>) -> Bound {
    let (correlation, lengths) = resolve(layer, operands.batch())?;
    let gradient = operands.source(Slot::Gradient, lengths.output)?;
    let mut input_gradient = operands.gradient(Slot::InputGradient(0), lengths.input)?;
    let mut weight_gradient = operands.gradient(Slot::ParameterGradient(0), lengths.weight)?;
    let mut bias_gradient = operands.gradient(Slot::ParameterGradient(1), lengths.bias)?;
    let weight = operands.source_if(input_gradient.is_some(), Slot::Parameter(0), lengths.weight)?;
    let input = operands.source_if(weight_gradient.is_some(), Slot::Input(0), lengths.input)?;
    kernel(move |frame| {
        let dy = gradient.get();
        if let (Some(out), Some(weight)) = (&mut input_gradient, &weight) {
            correlation.scatter(dy, weight.get(), None, out.target.get(), out.accumulate);
        }
        if let (Some(out), Some(input)) = (&mut weight_gradient, &input) {
            correlation.weigh(input.get(), dy, out.target.get(), out.accumulate, frame.scratch);
        }
        if let Some(out) = &mut bias_gradient {
            channel_sums(dy, correlation.window.positions_area(), out.target.get(), out.accumulate);
        }
    })
}
