//! Convolutions of one pixel that are one with their normalisations: with a sum with another map, and a Relu behind it, in the same pass, and
//! back through that.

use super::batch_norm::added as addend_of;
use super::{Fused, HandedOn, are_apart, forward_at, overlap};
use crate::calls::{Call, Convolution};
use crate::operations::normalized_convolution::{Rectified, backward_through};
use crate::operations::{Context, Setting, calls};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::function::Function;
use gpumem_core::program::{Op, Slot, TensorId};

/// Such a convolution by the library, then a sum with one other map, or a Relu, or both.
pub(super) fn added(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let Some((operation, Op::NormalizedConvolution(_), output)) = forward_at(placed, first) else { return Ok(None) };
    let mut all = calls(&Context { placed, operation, setting })?;
    let Some(Call::Convolution(convolution)) = all.pop() else { return Ok(None) };
    let is_known = convolution.channels_last && convolution.bias.is_some();
    let (mut count, mut fused, mut value) = (1, convolution, output);
    if let Some((addend, sum)) = addend_of(placed, first + count, value).filter(|&(addend, sum)| addend != sum) {
        (count, value) = (count + 1, sum);
        fused = Convolution { addend: Some(addend), y: sum, ..fused };
    }
    if let Some((next, Op::Pointwise(activation), through)) = forward_at(placed, first + count)
        && activation.function == Function::Relu
        && next.read(Slot::Input(0)) == Some(value)
        && super::ends(placed, first + count, value)
    {
        count += 1;
        fused = Convolution { relu: true, y: through, ..fused };
    }
    let is_apart = fused.addend != Some(fused.y) && are_apart(placed, first, count);
    if count == 1 || !is_known || !is_apart {
        return Ok(None);
    }
    all.push(fused.into());
    Ok(Some((count, all)))
}

/// The backward pass of a rectifier behind a sum, then that of such a convolution which gave one of its branches: what comes through the
/// rectifier is written while it is multiplied. The other branches have that gradient too.
pub(super) fn backward_of_sum(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let Some(HandedOn { rectifier, dy, output, between, operation, op: Op::NormalizedConvolution(op) }) =
        HandedOn::at(placed, first)
    else {
        return Ok(None);
    };
    // Parts of sums are written while both maps are read, all else later. What comes through may take the place of dy, where it is read again.
    let is_clear =
        |id: TensorId| operation.written(Slot::Workspace).is_none_or(|partial| !overlap(placed, partial, id));
    let is_apart = is_clear(dy) && is_clear(output) && !overlap(placed, between, output);
    if !is_apart || between == output {
        return Ok(None);
    }
    let context = Context { placed, operation, setting };
    let calls = backward_through(&context, op, Rectified { rectifier, dy, output })?;
    Ok(calls.map(|calls| (2, calls)))
}
