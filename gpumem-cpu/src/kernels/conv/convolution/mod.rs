//! 2-D convolution, `y[b, o, i] = bias[o] + sum over c, k of weight[o, c, k] * x[b, c, at(i, k)]`, and transposed convolution. In the latter, every
//! element of `x` adds its window to `y`: `y[b, o, i] = bias[o] + sum over c and all (p, k) with at(p, k) = i of weight[c, o, k] * x[b, c, p]`.
//!
//! Backward: `dx` scatters `dy` through the weight, or gathers it if transposed. `dweight` multiplies `dy` with the unfolded `x`, or `x` with
//! the unfolded `dy`. `dbias` sums `dy`.

pub(in crate::kernels) mod cached;

use crate::kernels::conv::correlation::{Correlation, channel_sums};
use crate::kernels::movement::window::Window;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Convolution;

/// Elements of a convolution's tensors.
struct Lengths {
    input: usize,
    output: usize,
    weight: usize,
    bias: usize,
}

/// Checks the sizes of a convolution. The windows of a transposed one slide over the output, with a position for each element of the input.
fn resolve(op: &Convolution, batch: u64) -> Result<(Correlation, Lengths), Error> {
    let [(images, image), (positions, position)] = op.sides();
    let groups = op.groups;
    if groups == 0 || [images, positions].iter().any(|channels| channels % groups != 0) {
        return Err(Error::Damaged("a convolution's groups do not divide its channels"));
    }
    let window = Window::new([image, position], &op.window)?;
    let channels = [images, positions].map(|channels| (channels / groups) as usize);
    let lengths = Lengths {
        input: count(&[batch, op.in_channels, op.input[0], op.input[1]]),
        output: count(&[batch, op.out_channels, op.output[0], op.output[1]]),
        weight: count(op.weight().dims()),
        bias: count(&[op.out_channels]),
    };
    Ok((Correlation::new(window, groups as usize, channels, count(&[batch])), lengths))
}

/// Returns the correlation that computes a convolution.
pub(in crate::kernels) fn correlation(op: &Convolution, batch: u64) -> Result<Correlation, Error> {
    resolve(op, batch).map(|(correlation, _)| correlation)
}

/// Computes `y` from `x`, the weight and the bias.
pub(in crate::kernels) fn forward(op: &Convolution, operands: &mut Operands<'_>) -> Bound {
    let (correlation, lengths) = resolve(op, operands.batch())?;
    let input = operands.source(Slot::Input(0), lengths.input)?;
    let weight = operands.source(Slot::Input(1), lengths.weight)?;
    let bias = operands.source_if(op.bias, Slot::Input(2), lengths.bias)?;
    let mut output = operands.target(Slot::Output, lengths.output)?;
    let transposed = op.transposed;
    kernel(move |frame| {
        let bias = bias.as_ref().map(|bias| bias.get());
        if transposed {
            correlation.scatter(input.get(), weight.get(), bias, output.get(), false, frame.scratch);
        } else {
            correlation.gather(input.get(), weight.get(), bias, output.get(), false, frame.scratch);
        }
    })
}

/// Computes the gradients that the operation writes.
pub(in crate::kernels) fn backward(op: &Convolution, operands: &mut Operands<'_>) -> Bound {
    let (correlation, lengths) = resolve(op, operands.batch())?;
    let gradient = operands.source(Slot::Gradient, lengths.output)?;
    let mut input_gradient = operands.gradient(Slot::InputGradient(0), lengths.input)?;
    let mut weight_gradient = operands.gradient(Slot::InputGradient(1), lengths.weight)?;
    let mut bias_gradient = operands.gradient(Slot::InputGradient(2), lengths.bias)?;
    let weight = operands.source_if(input_gradient.is_some(), Slot::Input(1), lengths.weight)?;
    let input = operands.source_if(weight_gradient.is_some(), Slot::Input(0), lengths.input)?;
    let (transposed, area) = (op.transposed, count(&op.output));
    kernel(move |frame| {
        let dy = gradient.get();
        if let (Some(out), Some(weight)) = (&mut input_gradient, &weight) {
            if transposed {
                correlation.gather(dy, weight.get(), None, out.target.get(), out.accumulate, frame.scratch);
            } else {
                correlation.scatter(dy, weight.get(), None, out.target.get(), out.accumulate, frame.scratch);
            }
        }
        if let (Some(out), Some(input)) = (&mut weight_gradient, &input) {
            let (images, positions) = if transposed { (dy, input.get()) } else { (input.get(), dy) };
            correlation.weigh(images, positions, out.target.get(), out.accumulate, frame.scratch);
        }
        if let Some(out) = &mut bias_gradient {
            channel_sums(dy, area, out.target.get(), out.accumulate);
        }
    })
}
