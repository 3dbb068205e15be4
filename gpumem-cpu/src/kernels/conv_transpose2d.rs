//! Transposed 2-D convolution: every element of `x` adds its window to `y`,
//! `y[b, o, i] = bias[o] + sum over c and all (p, k) with at(p, k) = i of weight[c, o, k] * x[b, c, p]`.
//!
//! Backward: `dx` gathers `dy` through the weight; `dweight` multiplies `x` with the unfolded `dy`; `dbias` sums `dy`.

use super::conv2d::{Lengths, correlation};
use super::correlation::{Correlation, channel_sums};
use super::window::Window;
use super::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::layers::ConvTranspose2d;
use gpumem_core::program::Slot;

/// The windows slide over the output, and have a position for each element of the input.
fn resolve(layer: &ConvTranspose2d, batch: u64) -> Result<(Correlation, Lengths), Error> {
    let maps = [layer.output, layer.input];
    let window = Window::new(maps, layer.kernel_size, layer.stride, layer.padding, layer.dilation)?;
    let correlation = correlation(window, layer.groups, [layer.out_channels, layer.in_channels])?;
    let [tall, wide] = layer.kernel_size;
    let lengths = Lengths {
        input: count(&[batch, layer.in_channels, layer.input[0], layer.input[1]]),
        output: count(&[batch, layer.out_channels, layer.output[0], layer.output[1]]),
        weight: count(&[layer.in_channels, layer.out_channels / layer.groups, tall, wide]),
        bias: count(&[layer.out_channels]),
    };
    Ok((correlation, lengths))
}

/// `y` from `x`, the weight and the bias.
pub(super) fn forward(layer: &ConvTranspose2d, operands: &mut Operands<'_>) -> Bound {
    let (correlation, lengths) = resolve(layer, operands.batch())?;
    let input = operands.source(Slot::Input(0), lengths.input)?;
    let weight = operands.source(Slot::Parameter(0), lengths.weight)?;
    let bias = operands.source_if(layer.bias, Slot::Parameter(1), lengths.bias)?;
    let mut output = operands.target(Slot::Output, lengths.output)?;
    kernel(move |_| {
        let bias = bias.as_ref().map(|bias| bias.get());
        correlation.scatter(input.get(), weight.get(), bias, output.get(), false);
    })
}

/// The gradients that the operation writes.
pub(super) fn backward(layer: &ConvTranspose2d, operands: &mut Operands<'_>) -> Bound {
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
            correlation.gather(dy, weight.get(), None, out.target.get(), out.accumulate);
        }
        if let (Some(out), Some(input)) = (&mut weight_gradient, &input) {
            correlation.weigh(dy, input.get(), out.target.get(), out.accumulate, frame.scratch);
        }
        if let Some(out) = &mut bias_gradient {
            channel_sums(dy, correlation.window.image_area(), out.target.get(), out.accumulate);
        }
    })
}
