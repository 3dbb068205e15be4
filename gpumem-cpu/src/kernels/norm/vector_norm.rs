//! Vector norm along an axis, `y[o, i] = |x[o, :, i]|_p`.
//!
//! Backward: `dx = dy * sign(x) * (|x| / y)^(p - 1)`, or 0 if the norm is 0. If `p` is infinite, the largest elements share `dy`.
//! Elements are divided by the largest one before their powers are taken, so that no power overflows or vanishes.

use crate::kernels::conv::max_pool::required;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Target, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::VectorNorm;
use rayon::prelude::*;

/// Returns the norms of the batch, the length of the axis, and the positions after the axis.
fn sizes(op: &VectorNorm, operands: &Operands<'_>) -> Result<[usize; 3], Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("norms without an order, or along an axis without elements"));
    }
    Ok([count(&[operands.batch(), op.outer, op.inner]), count(&[op.length]), count(&[op.inner])])
}

/// Returns the norm of some numbers. If `p` is infinite, also the number of elements that are as large as the largest.
fn norm(p: f64, x: impl Iterator<Item = f32> + Clone) -> (f32, f32) {
    // A NaN is larger than any number.
    let most = x.clone().fold(0f32, |most, x| if x.abs() > most || x.is_nan() { x.abs() } else { most });
    if p.is_infinite() {
        return (most, x.filter(|x| x.abs() == most).count() as f32);
    }
    if most == 0.0 || !most.is_finite() {
        return (most, 0.0);
    }
    let shares = x.map(|x| f64::from(x.abs()) / f64::from(most));
    let share = match p {
        1.0 => shares.sum::<f64>(),
        2.0 => shares.map(|share| share * share).sum::<f64>().sqrt(),
        _ => shares.map(|share| share.powf(p)).sum::<f64>().powf(1.0 / p),
    };
    ((f64::from(most) * share) as f32, 0.0)
}

/// Computes `y` from `x`.
pub(in crate::kernels) fn forward(op: &VectorNorm, operands: &mut Operands<'_>) -> Bound {
    let [norms, length, inner] = sizes(op, operands)?;
    let input = operands.source(Slot::Input(0), norms.saturating_mul(length))?;
    let mut output = operands.target(Slot::Output, norms)?;
    let mut ties = operands.target_if_any(Slot::Saved(0), norms)?;
    let p = op.p;
    kernel(move |_| {
        let x = input.get();
        let of = |at: usize| {
            norm(p, x[at / inner * length * inner + at % inner..].iter().step_by(inner).take(length).copied())
        };
        match ties.as_mut().map(Target::get) {
            Some(ties) => {
                output.get().par_iter_mut().zip(ties).enumerate().for_each(|(at, (y, ties))| (*y, *ties) = of(at))
            }
            None => output.get().par_iter_mut().enumerate().for_each(|(at, y)| *y = of(at).0),
        }
    })
}

/// Returns the slope of a norm `y` along one of its elements.
fn slope(p: f64, x: f32, y: f32, ties: f32) -> f32 {
    let sign = if x == 0.0 || x.is_nan() { x } else { x.signum() };
    if p.is_infinite() {
        return if x.abs() == y || x.is_nan() { sign / ties } else { 0.0 };
    }
    if p == 1.0 {
        return sign;
    }
    // The slope at 0 is 0 also for p below 1, although the slope near 0 is infinite.
    if x == 0.0 || y == 0.0 {
        return 0.0;
    }
    if p == 2.0 { x / y } else { sign * (x.abs() / y).powf((p - 1.0) as f32) }
}

/// Computes `dx` from `dy`.
pub(in crate::kernels) fn backward(op: &VectorNorm, operands: &mut Operands<'_>) -> Bound {
    let [norms, length, inner] = sizes(op, operands)?;
    let gradient = operands.source(Slot::Gradient, norms)?;
    let output = operands.source(Slot::Output, norms)?;
    let input = operands.source(Slot::Input(0), norms.saturating_mul(length))?;
    let ties = operands.source_if(op.has_ties(), Slot::Saved(0), norms)?;
    let (accumulate, mut target) = required(operands, norms.saturating_mul(length))?;
    let p = op.p;
    kernel(move |_| {
        let (x, y, dy) = (input.get(), output.get(), gradient.get());
        let ties = ties.as_ref().map(|ties| ties.get());
        parallel::pieces(None, target.get(), inner, |row, _, dx| {
            let (first, from) = (row / length * inner, row * inner);
            parallel::store(dx, accumulate, |i| {
                let shared = ties.map_or(1.0, |ties| ties[first + i]);
                dy[first + i] * slope(p, x[from + i], y[first + i], shared)
            });
            0.0
        });
    })
}
