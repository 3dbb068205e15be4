//! Triplet margin loss and margin ranking loss. The former takes an anchor `a`, a positive `p` and a negative `n`, for `P` triples of vectors of
//! `N` elements. The latter takes two values, one of which should be larger.
//!
//! ```text
//! triplet  max(0, margin + |a - p| - |a - n|), |d| = (sum of |d + 1e-6|^q)^(1 / q); with `swap` min(|a - n|, |p - n|) for |a - n|
//!          d|d| = sign(d) |d|^(q - 1) / |d|^(q - 1), elements over the norm
//! ranking  max(0, margin - t (x - y))    dx = -t, dy = t, where it is not below 0
//! ```
//!
//! Both losses are divided by the divisor.

use crate::kernels::loss::cosine_embedding::Vector;
use crate::kernels::loss::{Logits, Total, Weights};
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
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

/// Returns all inputs of a loss, starting with `first`.
fn sides<const N: usize>(operands: &mut Operands<'_>, first: Logits, length: usize) -> Result<[Logits; N], Error> {
    let mut sides = vec![first];
    for number in 1..N {
        sides.push(Logits::new(operands, number as u8, length)?);
    }
    sides.try_into().map_err(|_| Error::Damaged("a loss of several values has another number of them"))
}

/// Binds the triplet margin loss.
pub(in crate::kernels) fn bind(
    criterion: &Criterion,
    operands: &mut Operands<'_>,
    a: Logits,
    mut loss: Total,
) -> Bound {
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

/// Binds the margin ranking loss.
pub(in crate::kernels) fn bind_ranking(
    criterion: &Criterion,
    operands: &mut Operands<'_>,
    x: Logits,
    mut loss: Total,
) -> Bound {
    let Criterion { outer, classes, inner, weight, .. } = *criterion;
    let elements = count(&[operands.batch(), outer, classes, inner]);
    let mut sides: [Logits; 2] = sides(operands, x, elements)?;
    let targets = operands.source(Slot::Target, elements)?;
    if operands.writes(Slot::Workspace) {
        let sums = criterion.terms().0.elements().unwrap_or(0);
        operands.target(Slot::Workspace, count(&[sums]))?;
    }
    let weights = Weights::new(criterion, operands)?;
    let margin = criterion.number();
    kernel(move |_| {
        let share = weight / weights.divisor();
        let mut values = sides.each_mut().map(|side| Vector::of(side, 0..elements));
        let mut sum = 0.0;
        for (i, &target) in targets.get().iter().enumerate() {
            let [x, y] = values.each_ref().map(|value| f64::from(value.values()[i]));
            let term = margin - f64::from(target) * (x - y);
            // NaN and 0 count as active, as in the triplet loss.
            let is_active = term >= 0.0 || term.is_nan();
            sum += if is_active { term * weights.of(i) } else { 0.0 };
            let slope = if is_active { f64::from(target) * weights.of(i) * share } else { 0.0 };
            values[0].put(i, -slope);
            values[1].put(i, slope);
        }
        loss.put(sum * share);
    })
}
