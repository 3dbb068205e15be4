//! Convolutions of one pixel that are one with their normalisations: with a sum with another map, and a Relu behind it, in the same pass, and
//! back through that.

use super::sum::added as addend_of;
use super::{Fused, HandedOn, are_apart, backward_of, followed, forward_at, overlap};
use crate::calls::{Call, Convolution};
use crate::operations::batch_norm::{kept, parameters};
use crate::operations::normalized_convolution::{Again, Besides, Rectified, backward_with, direct_output};
use crate::operations::pointwise::Rectifier;
use crate::operations::{Context, Setting, calls};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::function::Function;
use gpumem_core::program::{Op, Slot, TensorId};

/// Such a convolution by the library, then a sum with one other map, or a Relu, or both.
pub(super) fn added(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let Some((operation, Op::NormalizedConvolution(op), output)) = forward_at(placed, first) else { return Ok(None) };
    let context = Context { placed, operation, setting };
    let mut all = calls(&context)?;
    // After the convolution come the channels that are computed by themselves.
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

/// The backward pass of a rectifier behind a sum, then that of such a convolution which gave one of its branches: what comes through the
/// rectifier is written while it is multiplied. The other branches have that gradient too.
pub(super) fn backward_of_sum(placed: &Placed, first: usize, setting: Setting) -> Fused {
    backward(placed, first, setting, None)
}

/// The normalisation in front of such a convolution, again from what it saved, with the function behind it; then the backward pass of the
/// convolution, maybe through a rectifier: its input is written while it is multiplied.
pub(super) fn backward_with_input(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let Some((operation, Op::BatchNorm(op), made)) = forward_at(placed, first) else { return Ok(None) };
    let context = Context { placed, operation, setting };
    let Some(saved) = kept(&context).filter(|_| op.within == 0) else { return Ok(None) };
    let (count, behind, x) = match followed(placed, first + 1, made, Rectifier::behind_norm) {
        Some((behind, output)) => (2, behind, output),
        None => (1, Rectifier::NONE, made),
    };
    let again = Again { input: context.read(Slot::Input(0))?, saved, parameters: parameters(&context, op)?, behind };
    let fused = backward(placed, first + count, setting, Some((again, x)))?;
    Ok(fused.map(|(others, calls)| (count + others, calls)))
}

/// The backward pass through a rectifier, if there is one, and of the convolution, from operation `first` on. Its input may be made again.
fn backward(placed: &Placed, first: usize, setting: Setting, again: Option<(Again, TensorId)>) -> Fused {
    let handed = HandedOn::at(placed, first);
    let count = if handed.is_some() { 2 } else { 1 };
    if count == 1 && again.is_none() {
        return Ok(None);
    }
    let Some(operation) = placed.program.operations.get(first + count - 1) else { return Ok(None) };
    let Some(Op::NormalizedConvolution(op)) = backward_of(operation) else { return Ok(None) };
    // Parts of sums, the input and what comes through the rectifier are written while all maps are read, and what is made of them later. In
    // the place of dy may be what comes through, which is read again there, and nothing else.
    let apart = |written: TensorId, read: TensorId| written != read && !overlap(placed, written, read);
    let partial = operation.written(Slot::Workspace);
    let mut is_apart = true;
    let rectified = handed.map(|HandedOn { rectifier, dy, output, between, .. }| {
        is_apart &=
            apart(between, output) && partial.is_none_or(|partial| apart(partial, dy) && apart(partial, output));
        if let Some((_, x)) = again {
            is_apart &= apart(x, dy) && apart(x, output);
        }
        Rectified { rectifier, dy, output }
    });
    let again = again.map(|(again, x)| {
        is_apart &= operation.read(Slot::Input(0)) == Some(x);
        // Nothing may read what the normalisation had after it.
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
    Ok(calls.map(|calls| (count, calls)))
}
