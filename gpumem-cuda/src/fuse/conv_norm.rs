//! Fusion of conv norms with a sum and a Relu after them, forward and backward. A conv norm is a 1x1 convolution and its batch norm as one
//! operation.

use super::sum::added as addend_of;
use super::{Fused, RectifierGradient, are_apart, followed, forward_at, overlap};
use crate::calls::{Call, Convolution};
use crate::operations::conv::normalized_convolution::{Again, Besides, Rectified, backward_with, direct_output};
use crate::operations::elementwise::pointwise::Rectifier;
use crate::operations::norm::batch_norm::{kept, parameters};
use crate::operations::{Context, LaunchContext, calls};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::functions::Function;
use gpumem_core::program::fusion::Group;
use gpumem_core::program::{Op, Slot, TensorId};

/// Fuses a conv norm computed by the library with a sum with one other map, a Relu, or both.
pub(super) fn added(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let Some((operation, Op::NormalizedConvolution(op), output)) = forward_at(placed, first) else { return Ok(None) };
    let context = Context { placed, operation, setting };
    let mut all = calls(&context)?;
    // The last call is the kernel for channels that are computed directly; the convolution comes before it.
    let Some((_, Call::Convolution(convolution))) = all.pop().zip(all.pop()) else { return Ok(None) };
    let is_known = convolution.channels_last && convolution.bias.is_some();
    let (mut count, mut fused, mut value) = (1, convolution, output);
    let mut addend = None;
    if let Some((other, sum)) = addend_of(placed, first + count, value).filter(|&(other, sum)| other != sum) {
        (count, value, addend) = (count + 1, sum, Some(other));
        fused = Convolution { addend, y: sum, ..fused };
    }
    if let Some((next, Op::Pointwise(activation), through)) = forward_at(placed, first + count)
        && activation.function == Function::Relu
        && next.read(Slot::Input(0)) == Some(value)
        && super::ends(placed, first + count, value)
    {
        (count, value) = (count + 1, through);
        fused = Convolution { relu: true, y: through, ..fused };
    }
    let is_apart = fused.addend != Some(fused.y) && are_apart(placed, first, count);
    if count == 1 || !is_known || !is_apart {
        return Ok(None);
    }
    let direct = direct_output(&context, op, (addend, value), fused.relu)?;
    all.extend([fused.into(), direct]);
    Ok(Some((count, all)))
}

/// Fuses the backward pass of a rectifier after a sum with that of the conv norm of one branch.
///
/// The gradient after the rectifier is written while it is multiplied, because the other branches need that gradient too.
pub(super) fn backward_of_sum(placed: &Placed, group: Group, setting: LaunchContext) -> Fused {
    backward(placed, group, group.first, None, setting)
}

/// Fuses recomputing a conv norm's input with the conv norm's backward pass, which may include a rectifier's.
///
/// The input is the output of a normalisation, recomputed from its saved tensors, and of the function after it. It is written while it is
/// multiplied.
pub(super) fn backward_with_input(placed: &Placed, group: Group, setting: LaunchContext) -> Fused {
    let first = group.first;
    let Some((operation, Op::BatchNorm(op), made)) = forward_at(placed, first) else { return Ok(None) };
    let context = Context { placed, operation, setting };
    let Some(saved) = kept(&context).filter(|_| op.within == 0) else { return Ok(None) };
    let (gradient, after, x) = match followed(placed, first + 1, made, Rectifier::after_norm) {
        Some((after, output)) => (first + 2, after, output),
        None => (first + 1, Rectifier::NONE, made),
    };
    let again = Again { input: context.read(Slot::Input(0))?, saved, parameters: parameters(&context, op)?, after };
    backward(placed, group, gradient, Some((again, x)), setting)
}

/// Fuses a group that ends with a conv norm's backward pass. The gradients begin at operation `first`, maybe with that of a rectifier. With `again`,
/// the operations before recompute the conv norm's input.
fn backward(
    placed: &Placed,
    group: Group,
    first: usize,
    again: Option<(Again, TensorId)>,
    setting: LaunchContext,
) -> Fused {
    let operation = &placed.program.operations[group.last()];
    let Some(Op::NormalizedConvolution(op)) = operation.backward() else { return Ok(None) };
    let rectifier = RectifierGradient::at(placed, first);
    if rectifier.is_none() && first < group.last() {
        return Ok(None);
    }
    // Partial sums, the input and the gradient after the rectifier are written while all maps are still being read; the results of the sums are
    // written later. Only the gradient after the rectifier may take the place of dy, since it is read again there.
    let apart = |written: TensorId, read: TensorId| written != read && !overlap(placed, written, read);
    let partial = operation.written(Slot::Workspace);
    let mut is_apart = true;
    let rectified = rectifier.map(|RectifierGradient { rectifier, dy, output, between }| {
        is_apart &=
            apart(between, output) && partial.is_none_or(|partial| apart(partial, dy) && apart(partial, output));
        if let Some((_, x)) = again {
            is_apart &= apart(x, dy) && apart(x, output);
        }
        Rectified { rectifier, dy, output }
    });
    let again = again.map(|(again, x)| {
        is_apart &= operation.read(Slot::Input(0)) == Some(x);
        // No other operation may read the normalisation's output afterwards.
        let written = [Some(x), partial, operation.read(Slot::Gradient)];
        let parameters = again.parameters.into_iter().flatten();
        for read in [again.input, again.saved].into_iter().chain(parameters) {
            is_apart &= written.into_iter().flatten().all(|written| apart(written, read));
        }
        again
    });
    if !is_apart {
        return Ok(None);
    }
    let context = Context { placed, operation, setting };
    let calls = backward_with(&context, op, Besides { rectified, again })?;
    Ok(calls.map(|calls| (group.count, calls)))
}
