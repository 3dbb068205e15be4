//! Batch normalisation and a leaky ReLU, whose backward pass reads only the output of the ReLU, `y`.
//!
//! With `z = y` or, if that is negative, `y / slope`, the normalised value is `n = (z - bias[c]) / weight[c]`, and 0 if the weight is 0. The rest is
//! the backward pass of `batch_norm.rs`, for the gradient before the ReLU.

use crate::kernels::Bound;
use crate::kernels::norm::batch_norm;
use crate::kernels::norm::batch_norm::{Alters, Channel, Maps, Reads};
use crate::operands::{Operands, count};
use gpumem_core::program::Slot;
use gpumem_core::program::ops::InplaceNorm;

/// Applies the leaky ReLU.
fn rectify(x: f32, slope: f32) -> f32 {
    if x < 0.0 { slope * x } else { x }
}

/// The inverse of the leaky ReLU, and of scale and shift.
#[derive(Clone, Copy)]
struct Back {
    slope: f32,
    shift: f32,
    /// 1 / weight, or 0 if the weight is 0.
    inverse: f32,
}

impl Back {
    fn of(slope: f64, weight: Option<f32>, shift: Option<f32>) -> Back {
        let weight = weight.unwrap_or(1.0);
        let inverse = if weight == 0.0 { 0.0 } else { 1.0 / weight };
        Back { slope: slope as f32, shift: shift.unwrap_or(0.0), inverse }
    }
}

impl Channel for Back {
    fn normalised(self, y: f32) -> f32 {
        let before = if y < 0.0 { y / self.slope } else { y };
        (before - self.shift) * self.inverse
    }

    /// Returns the gradient before the leaky ReLU. As in PyTorch, 0 is not positive.
    fn gradient(self, dy: f32, y: f32) -> f32 {
        if y > 0.0 { dy } else { self.slope * dy }
    }

    fn product(self, gradient: f32, y: f32) -> f64 {
        f64::from(gradient) * f64::from(self.normalised(y))
    }
}

pub(in crate::kernels) fn forward(op: &InplaceNorm, operands: &mut Operands<'_>) -> Bound {
    let slope = op.slope as f32;
    batch_norm::forward_through(&op.norm(), operands, move |y| rectify(y, slope))
}

/// Computes the gradients that the operation writes. `dx` may overwrite `dy`.
pub(in crate::kernels) fn backward(op: &InplaceNorm, operands: &mut Operands<'_>) -> Bound {
    let channels = count(&[op.channels]);
    let maps = Maps { channels, kept: channels, area: count(&op.size) };
    let reads = Reads {
        kept: Slot::Output,
        affine: op.affine,
        weight: true,
        bias: true,
        alters: Alters::Cheaply,
        by_batch: true,
    };
    let slope = op.slope;
    batch_norm::backward_of(maps, reads, operands, move |c, _, weight, bias| {
        Back::of(slope, weight.map(|weight| weight[c]), bias.map(|bias| bias[c]))
    })
}
