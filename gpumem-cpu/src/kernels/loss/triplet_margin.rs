//! Triplet margin loss of an anchor `a`, a positive `p` and a negative `n`, for `P` triples of vectors of `N` elements.
//!
//! ```text
//! max(0, margin + |a - p| - |a - n|), |d| = (sum of |d + 1e-6|^q)^(1 / q); with `swap` min(|a - n|, |p - n|) for |a - n|
//! d|d| = sign(d) |d|^(q - 1) / |d|^(q - 1), elements over the norm
//! ```
//!
//! The loss is divided by the divisor of its reduction.

use crate::kernels::loss::values::{Vector, sides};
use crate::kernels::loss::{Logits, Total, Weights};
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::program::{Criterion, Slot};

/// The number that PyTorch adds to each element of a difference.
const EPSILON: f64 = 1e-6;

/// A norm of this degree, of differences.
#[derive(Clone, Copy)]
struct Norm {
    degree: f64,
}

impl Norm {
    fn of(self, x: &[f32], y: &[f32]) -> f64 {
        let each = x.iter().zip(y).map(|(&x, &y)| difference(x, y).abs());
        if self.degree == 2.0 {
            each.map(|d| d * d).sum::<f64>().sqrt()
        } else {
            each.map(|d| d.powf(self.degree)).sum::<f64>().powf(1.0 / self.degree)
        }
    }

    /// Returns the slope of a norm along the difference of two elements.
    fn slope(self, x: f32, y: f32, norm: f64) -> f64 {
        let d = difference(x, y);
        if norm == 0.0 || d == 0.0 { 0.0 } else { d.signum() * (d.abs() / norm).powf(self.degree - 1.0) }
    }
}

fn difference(x: f32, y: f32) -> f64 {
    f64::from(x) - f64::from(y) + EPSILON
}

/// Binds the loss to its operands.
pub(super) fn bind(criterion: &Criterion, operands: &mut Operands<'_>, a: Logits, mut loss: Total) -> Bound {
    let Criterion { outer, classes, weight, .. } = *criterion;
    let (triples, length) = (count(&[operands.batch(), outer]), count(&[classes]));
    let mut sides: [Logits; 3] = sides(operands, a, count(&[operands.batch(), outer, classes]))?;
    // The sum is computed in double precision, which needs no scratch memory.
    if operands.writes(Slot::Workspace) {
        operands.target(Slot::Workspace, triples)?;
    }
    let weights = Weights::new(criterion, operands)?;
    let (margin, norm, swaps) = (criterion.number(), Norm { degree: criterion.second() }, criterion.options.swap);
    kernel(move |_| {
        let share = weight / weights.divisor();
        let mut sum = 0.0;
        for triple in 0..triples {
            let range = triple * length..(triple + 1) * length;
            let mut vectors = sides.each_mut().map(|side| Vector::of(side, range.clone()));
            let [a, p, n] = vectors.each_ref().map(Vector::values);
            let [near, far] = [norm.of(a, p), norm.of(a, n)];
            // The share of |p - n| in the distance of the negative. It is one half if both distances are equal.
            let (across, swapped) = match swaps.then(|| norm.of(p, n)) {
                Some(across) if across < far => (across, 1.0),
                Some(across) if across == far => (across, 0.5),
                _ => (1.0, 0.0),
            };
            let term = margin + near - if swapped > 0.0 { across } else { far };
            // A NaN counts as active too. At 0 the slope is 1, as in PyTorch's clamp.
            let is_active = term >= 0.0 || term.is_nan();
            let of_term = weights.of(triple);
            sum += if is_active { term * of_term } else { 0.0 };
            for i in 0..length {
                let [a, p, n] = vectors.each_ref().map(|vector| vector.values()[i]);
                let (mut da, mut dp, mut dn) = (0.0, 0.0, 0.0);
                if is_active {
                    let pull = norm.slope(a, p, near);
                    let push = if swapped < 1.0 { (1.0 - swapped) * norm.slope(a, n, far) } else { 0.0 };
                    let apart = if swapped > 0.0 { swapped * norm.slope(p, n, across) } else { 0.0 };
                    (da, dp, dn) = (pull - push, -pull - apart, push + apart);
                }
                for (vector, slope) in vectors.iter_mut().zip([da, dp, dn]) {
                    vector.put(i, slope * of_term * share);
                }
            }
        }
        loss.put(sum * share);
    })
}
