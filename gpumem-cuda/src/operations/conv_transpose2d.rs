//! Transposed convolutions: `kernels/conv_transpose2d.cu`. Images are the output and positions the input.

use super::Context;
use super::conv2d::{Correlation, Tail};
use crate::launch::Launch;
use gpumem_core::error::Error;
use gpumem_core::layers::ConvTranspose2d;
use gpumem_core::program::{Slot, TensorId};

fn correlation(layer: &ConvTranspose2d, batch: u64) -> Result<Correlation, Error> {
    let of_group = |channels: u64| channels.checked_div(layer.groups).unwrap_or(0);
    let correlation = Correlation {
        file: "conv_transpose2d.cu",
        batch,
        groups: layer.groups,
        images: of_group(layer.out_channels),
        positions: of_group(layer.in_channels),
        image: layer.output,
        position: layer.input,
        kernel: layer.kernel_size,
        stride: layer.stride,
        padding: layer.padding,
        dilation: layer.dilation,
    };
    correlation.checked()
}

pub(super) fn forward(context: &Context<'_>, layer: &ConvTranspose2d) -> Result<Vec<Launch>, Error> {
    forward_to(context, layer, context.written(Slot::Output)?, 0)
}

/// The forward pass, through a rectifier, to `y`.
pub(super) fn forward_to(
    context: &Context<'_>,
    layer: &ConvTranspose2d,
    y: TensorId,
    rectifier: u8,
) -> Result<Vec<Launch>, Error> {
    let x = context.read(Slot::Input(0))?;
    let bias = if layer.bias { Some(context.read(Slot::Parameter(1))?) } else { None };
    let correlation = correlation(layer, context.samples(y))?;
    let tail = Tail { bias, rectifier, ..Tail::plain(y, 0) };
    correlation.scatter(context, "conv_transpose2d_forward", x, tail)
}

pub(super) fn backward(context: &Context<'_>, layer: &ConvTranspose2d) -> Result<Vec<Launch>, Error> {
    let dy = context.read(Slot::Gradient)?;
    let correlation = correlation(layer, context.samples(dy))?;
    let entries =
        ["conv_transpose2d_backward_filter", "conv_transpose2d_backward_filter_sum", "conv_transpose2d_backward_bias"];
    let mut launches = correlation.parameters(context, entries, layer.out_channels)?;
    if let Some(dx) = context.operation.written(Slot::InputGradient(0)) {
        let tail = Tail::plain(dx, context.adds(Slot::InputGradient(0)));
        launches.push(correlation.gather(context, "conv_transpose2d_backward_data", dy, tail)?);
    }
    Ok(launches)
}
