//! Convolutions of one pixel that are one with their normalisations: with a sum with another map, and a Relu behind it, in the same pass.

use super::batch_norm::added as addend_of;
use super::{Fused, are_apart, forward_at};
use crate::calls::{Call, Convolution};
use crate::operations::{Context, Setting, calls};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::function::Function;
use gpumem_core::program::{Op, Slot};

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
