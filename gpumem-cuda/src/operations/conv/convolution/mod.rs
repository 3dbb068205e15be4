//! Calls of convolutions and transposed convolutions: `kernels/conv/convolution.cu` and `kernels/conv/convolution_transposed.cu`, or cuDNN ([`library`]), or
//! cuBLASLt for 1x1 convolutions ([`product`]).
//!
//! Both slide windows over images; each window has a position. A convolution computes positions from images, a transposed convolution images from
//! positions.

pub(in crate::operations) mod cached;
mod correlation;
pub(crate) mod library;
mod narrow;
pub(crate) mod product;

use crate::calls::{Call, Launch};
use crate::operations::context::Context;
use crate::operations::elementwise::pointwise::Rectifier;
use correlation::{Correlation, Kernels, Tail};
use gpumem_core::error::Error;
use gpumem_core::program::ops::Convolution;
use gpumem_core::program::{Slot, TensorId};

const PLAIN: Kernels = Kernels {
    file: "convolution.cu",
    transposed: false,
    forward: "convolution_forward",
    data: "convolution_backward_data",
    filter: ["convolution_backward_filter", "convolution_backward_filter_sum"],
    bias: ["convolution_backward_bias", "convolution_backward_bias_sum"],
};

const TRANSPOSED: Kernels = Kernels {
    file: "convolution_transposed.cu",
    transposed: true,
    forward: "convolution_transposed_forward",
    data: "convolution_transposed_backward_data",
    filter: ["convolution_transposed_backward_filter", "convolution_transposed_backward_filter_sum"],
    bias: ["convolution_transposed_backward_bias", "convolution_transposed_backward_bias_sum"],
};

/// Returns the sizes of an operation on as many samples as `y`, the output or its gradient, has.
fn correlation(context: &Context<'_>, op: &Convolution, y: TensorId) -> Result<Correlation, Error> {
    let of_group = |channels: u64| channels.checked_div(op.groups).unwrap_or(0);
    let [(images, image), (positions, position)] = op.sides();
    let correlation = Correlation {
        kernels: if op.transposed { &TRANSPOSED } else { &PLAIN },
        batch: context.samples(y),
        groups: op.groups,
        images: of_group(images),
        positions: of_group(positions),
        image,
        position,
        kernel: op.window.kernel_size,
        stride: op.window.stride,
        padding: op.window.padding,
        dilation: op.window.dilation,
    };
    correlation.checked()
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Convolution) -> Result<Vec<Call>, Error> {
    if context.setting.cudnn
        && let Some(convolution) = library::forward(context, op)?
    {
        return Ok(vec![convolution.into()]);
    }
    if let Some(product) = product::forward(context, op, false)? {
        return Ok(vec![product.into()]);
    }
    let launches = forward_to(context, op, context.written(Slot::Output)?, Rectifier::NONE)?;
    Ok(launches.into_iter().map(Call::from).collect())
}

/// Returns the launches of the forward pass by gpumem's own kernels, with a rectifier, to `y`.
pub(crate) fn forward_to(
    context: &Context<'_>,
    op: &Convolution,
    y: TensorId,
    rectifier: Rectifier,
) -> Result<Vec<Launch>, Error> {
    let x = context.read(Slot::Input(0))?;
    let bias = if op.bias { Some(context.read(Slot::Input(2))?) } else { None };
    let correlation = correlation(context, op, y)?;
    let (tail, entry) = (Tail { bias, rectifier, ..Tail::plain(y, 0) }, correlation.kernels.forward);
    if op.transposed {
        correlation.scatter(context, entry, x, tail)
    } else {
        Ok(vec![correlation.gather(context, entry, x, tail)?])
    }
}

/// Returns the launch of a forward pass with a bias whose result is added to its tensor. It is gpumem's own kernel, because the libraries overwrite
/// the tensor.
pub(in crate::operations) fn forward_added(context: &Context<'_>, op: &Convolution) -> Result<Launch, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let correlation = correlation(context, op, y)?;
    let tail = Tail { bias: Some(context.read(Slot::Input(2))?), ..Tail::plain(y, 1) };
    correlation.gather(context, correlation.kernels.forward, x, tail)
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Convolution) -> Result<Vec<Call>, Error> {
    if context.setting.cudnn
        && let Some(calls) = library::backward(context, op)?
    {
        return Ok(calls);
    }
    if let Some(calls) = product::backward(context, op)? {
        return Ok(calls);
    }
    let dy = context.read(Slot::Gradient)?;
    let correlation = correlation(context, op, dy)?;
    let mut launches = correlation.parameters(context)?;
    if let Some(dx) = context.operation.written(Slot::InputGradient(0)) {
        let (tail, entry) = (Tail::plain(dx, context.adds(Slot::InputGradient(0))), correlation.kernels.data);
        if op.transposed {
            launches.push(correlation.gather(context, entry, dy, tail)?);
        } else {
            launches.extend(correlation.scatter(context, entry, dy, tail)?);
        }
    }
    Ok(launches.into_iter().map(Call::from).collect())
}
