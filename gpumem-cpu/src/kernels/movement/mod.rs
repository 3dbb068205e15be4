//! Operations that belong to no layer: `y += x`, `y = x`, and the sum of a gradient over the batch.

pub(in crate::kernels) mod arg_max;
pub(in crate::kernels) mod as_strided;
pub(in crate::kernels) mod concat;
pub(in crate::kernels) mod exchange;
pub(in crate::kernels) mod expand;
pub(in crate::kernels) mod gather;
pub(in crate::kernels) mod interpolate;
pub(in crate::kernels) mod offload;
pub(in crate::kernels) mod pad;
pub(in crate::kernels) mod permute;
pub(in crate::kernels) mod resize;
pub(in crate::kernels) mod scatter_add;
pub(in crate::kernels) mod separable_sum;
pub(in crate::kernels) mod slice;
pub(in crate::kernels) mod take;
pub(in crate::kernels) mod take_along;
pub(in crate::kernels) mod top_k;
pub(in crate::kernels) mod window;

use super::{Bound, kernel};
use crate::operands::Operands;
use crate::parallel::{self, PIECE};
use crate::simd::wide;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;

/// Adds: `y += x`.
pub(super) fn accumulate(operands: &mut Operands<'_>) -> Bound {
    add(operands, Slot::Input(0), Slot::Output)
}

/// Adds the gradient of a parameter for one micro-batch to the sum over all of them.
pub(super) fn collect(operands: &mut Operands<'_>) -> Bound {
    add(operands, Slot::Gradient, Slot::ParameterGradient)
}

fn add(operands: &mut Operands<'_>, part: Slot, sum: Slot) -> Bound {
    let length = operands.length(part)?;
    let input = operands.source(part, length)?;
    let mut output = operands.target(sum, length)?;
    kernel(move |_| {
        let x = input.get();
        parallel::pieces(Some(x), output.get(), PIECE, |_, x, y| {
            wide(|| y.iter_mut().zip(x.unwrap_or_default()).for_each(|(y, x)| *y += x));
            0.0
        });
    })
}

/// Copies: `y = x`.
pub(super) fn copy(operands: &mut Operands<'_>) -> Bound {
    let length = operands.length(Slot::Input(0))?;
    let mut pair = operands.pair(Slot::Input(0), Slot::Output, length)?;
    kernel(move |_| {
        if let (Some(x), y) = pair.get() {
            y.copy_from_slice(x);
        }
    })
}

/// Sums the gradient of a tensor that all samples share: `dx[n] = sum over b of dy[b, n]`.
pub(super) fn sum_batch(operands: &mut Operands<'_>) -> Bound {
    let batch = operands.batch() as usize;
    let length = operands.length(Slot::Gradient)?;
    let gradient = operands.source(Slot::Gradient, length)?;
    let each = length / batch;
    let out = operands.gradient(Slot::InputGradient(0), each)?;
    let mut out = out.ok_or(Error::Damaged("a backward operation writes no gradient"))?;
    kernel(move |_| {
        let dy = gradient.get();
        parallel::column_sums(out.target.get(), out.accumulate, batch, |sample, first, sums| {
            sums.iter_mut().zip(&dy[sample * each + first..]).for_each(|(sum, &dy)| *sum += f64::from(dy));
        });
    })
}
