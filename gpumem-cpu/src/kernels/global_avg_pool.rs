//! Mean over height and width, `y[b, c] = mean over h, w of x[b, c, h, w]`.
//!
//! Backward: every element of the plane gets `dy[b, c] / (H * W)`.

use super::max_pool2d::required;
use super::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel;
use gpumem_core::layers::GlobalAvgPool;
use gpumem_core::program::Slot;
use rayon::prelude::*;

/// Elements of a plane, and planes of the batch.
fn resolve(layer: &GlobalAvgPool, operands: &Operands<'_>) -> (usize, usize) {
    (count(&layer.input), count(&[operands.batch(), layer.channels]))
}

/// `y` from `x`.
pub(super) fn forward(layer: &GlobalAvgPool, operands: &mut Operands<'_>) -> Bound {
    let (area, planes) = resolve(layer, operands);
    let input = operands.source(Slot::Input(0), area.saturating_mul(planes))?;
    let mut output = operands.target(Slot::Output, planes)?;
    kernel(move |_| {
        let planes = output.get().par_iter_mut().zip(input.get().par_chunks(area));
        planes.for_each(|(y, x)| *y = (parallel::sum(x, f64::from) / area as f64) as f32);
    })
}

/// `dx` from `dy`.
pub(super) fn backward(layer: &GlobalAvgPool, operands: &mut Operands<'_>) -> Bound {
    let (area, planes) = resolve(layer, operands);
    let gradient = operands.source(Slot::Gradient, planes)?;
    let (accumulate, mut target) = required(operands, area.saturating_mul(planes))?;
    kernel(move |_| {
        let dy = gradient.get();
        parallel::pieces(None, target.get(), area, |plane, _, dx| {
            let share = dy[plane] / area as f32;
            parallel::store(dx, accumulate, |_| share);
            0.0
        });
    })
}
