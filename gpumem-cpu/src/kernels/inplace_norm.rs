//! Batch normalisation and a leaky rectifier, whose backward pass has nothing but what that gave, `y`.
//!
//! With `z = y` or, where that is negative, `y / slope`, what was normalised is `n = (z - bias[c]) / weight[c]`, and 0 where the weight is.
//! From there on it is the backward pass of `batch_norm.rs`, of the gradient behind the rectifier.

use super::batch_norm::{self, planes};
use super::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel::{self, grown};
use crate::simd::wide;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::InplaceNorm;
use rayon::prelude::*;

/// The leaky rectifier.
fn rectify(x: f32, slope: f32) -> f32 {
    if x < 0.0 { slope * x } else { x }
}

/// The way back through it, and through scale and shift.
#[derive(Clone, Copy)]
struct Back {
    slope: f32,
    shift: f32,
    /// 1 / weight, or 0.
    inverse: f32,
}

impl Back {
    fn of(slope: f64, weight: Option<f32>, shift: Option<f32>) -> Back {
        let weight = weight.unwrap_or(1.0);
        let inverse = if weight == 0.0 { 0.0 } else { 1.0 / weight };
        Back { slope: slope as f32, shift: shift.unwrap_or(0.0), inverse }
    }

    /// What was normalised.
    fn normalised(self, y: f32) -> f32 {
        let before = if y < 0.0 { y / self.slope } else { y };
        (before - self.shift) * self.inverse
    }

    /// The gradient behind the rectifier, as PyTorch's: 0 is not positive.
    fn gradient(self, dy: f32, y: f32) -> f32 {
        if y > 0.0 { dy } else { self.slope * dy }
    }
}

pub(super) fn forward(op: &InplaceNorm, operands: &mut Operands<'_>) -> Bound {
    let slope = op.slope as f32;
    batch_norm::forward(&op.norm(), operands, move |y| rectify(y, slope))
}

/// The gradients that the operation writes; `dx` may overwrite `dy`.
pub(super) fn backward(op: &InplaceNorm, operands: &mut Operands<'_>) -> Bound {
    let (channels, slope) = (count(&[op.channels]), op.slope);
    let area = count(&op.size);
    let length = count(&[operands.batch(), op.channels, op.size[0], op.size[1]]);
    let output = operands.source(Slot::Output, length)?;
    let saved = operands.source(Slot::Saved(0), 2 * channels)?;
    let weight = operands.source_if(op.affine, Slot::Input(1), channels)?;
    let bias = operands.source_if(op.affine, Slot::Input(2), channels)?;
    let mut weight_gradient = operands.gradient(Slot::InputGradient(1), channels)?;
    let mut bias_gradient = operands.gradient(Slot::InputGradient(2), channels)?;
    let flows = operands.writes(Slot::InputGradient(0));
    let mut pair = if flows { Some(operands.gradients(0, length)?) } else { None };
    let accumulate = pair.as_ref().is_some_and(|(_, accumulate)| *accumulate);
    let alone = operands.source_if(!flows, Slot::Gradient, length)?;
    kernel(move |frame| {
        let y = output.get();
        let rstds = &saved.get()[channels..];
        let (weight, bias) = (weight.as_ref().map(|weight| weight.get()), bias.as_ref().map(|bias| bias.get()));
        let back = |c: usize| Back::of(slope, weight.map(|weight| weight[c]), bias.map(|bias| bias[c]));
        let (sums, products) = grown(frame.scratch, 2 * channels).split_at_mut(channels);
        let (source, mut target) = match &mut pair {
            Some((pair, _)) => {
                let (source, target) = pair.get();
                (source, Some(target))
            }
            None => (alone.as_ref().map(|alone| alone.get()), None),
        };
        let dy = source.or(target.as_deref()).unwrap_or_default();
        sums.par_iter_mut().zip(products.par_iter_mut()).enumerate().for_each(|(c, (sum, product))| {
            let back = back(c);
            let gradient = |dy: f32, y: f32| f64::from(back.gradient(dy, y));
            let scaled = |dy: f32, y: f32| gradient(dy, y) * f64::from(back.normalised(y));
            let both = || planes(dy, channels, area, c).zip(planes(y, channels, area, c));
            *sum = both().map(|(dy, y)| parallel::sum_of_pairs(dy, y, gradient)).sum::<f64>() as f32;
            *product = both().map(|(dy, y)| parallel::sum_of_pairs(dy, y, scaled)).sum::<f64>() as f32;
        });
        if let Some(out) = &mut weight_gradient {
            parallel::store(out.target.get(), out.accumulate, |c| products[c]);
        }
        if let Some(out) = &mut bias_gradient {
            parallel::store(out.target.get(), out.accumulate, |c| sums[c]);
        }
        let Some(target) = target.take() else { return };
        let share = (channels as f64 / length as f64) as f32;
        let (sums, products) = (&*sums, &*products);
        parallel::pieces(source, target, area, |plane, dy, dx| {
            let c = plane % channels;
            let (y, back) = (&y[plane * area..][..area], back(c));
            let scale = rstds[c] * weight.map_or(1.0, |weight| weight[c]);
            let (sum, product) = (sums[c] * share, products[c] * share);
            let value = |dy: f32, y: f32| scale * (back.gradient(dy, y) - sum - back.normalised(y) * product);
            match dy {
                None => wide(|| dx.iter_mut().zip(y).for_each(|(dx, &y)| *dx = value(*dx, y))),
                Some(dy) => parallel::store(dx, accumulate, |i| value(dy[i], y[i])),
            }
            0.0
        });
    })
}
