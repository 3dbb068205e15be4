//! Cosine embedding loss of `P` pairs of vectors `x` and `y` of `N` elements: how far they point apart.
//!
//! ```text
//! c = x y / d,  d = sqrt(m(x) m(y)),  m(x) = x x + 1e-12
//! target  1: 1 - c                 dx = -(y / d - c x / m(x))
//! target -1: max(0, c - margin)    dx = y / d - c x / m(x), where c is not below the margin
//! ```
//!
//! The loss is divided by the divisor of its reduction. A target other than 1 and -1 has neither loss nor gradient.

use crate::kernels::loss::values::Vector;
use crate::kernels::loss::{Logits, Total, Weights};
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel;
use gpumem_core::program::{Criterion, Slot};

/// The number that is added to squared lengths: 1e-12 as an f32, as in PyTorch.
const LEAST: f64 = 1e-12_f32 as f64;

/// The numbers from which the gradients of a pair are computed.
#[derive(Clone, Copy)]
struct Angle {
    cosine: f64,
    /// The product of the lengths.
    lengths: f64,
    /// Squared lengths.
    squares: [f64; 2],
}

impl Angle {
    fn new(x: &[f32], y: &[f32]) -> Angle {
        let product = |x: &[f32], y: &[f32]| parallel::sum_of_pairs(x, y, |x, y| f64::from(x) * f64::from(y));
        let squares = [product(x, x) + LEAST, product(y, y) + LEAST];
        let lengths = (squares[0] * squares[1]).sqrt();
        Angle { cosine: product(x, y) / lengths, lengths, squares }
    }

    /// Returns the term of a target, and its derivative with respect to the cosine.
    fn term(self, target: f32, margin: f64) -> [f64; 2] {
        match target {
            1.0 => [1.0 - self.cosine, -1.0],
            // A cosine that is not below the margin may be NaN. At the margin the slope is 1, as in PyTorch's clamp.
            -1.0 if self.cosine < margin => [0.0, 0.0],
            -1.0 => [self.cosine - margin, 1.0],
            _ => [0.0, 0.0],
        }
    }

    /// Returns the gradient of an element `own` of one side. It takes the other side's element and the derivative with respect to the cosine.
    fn slope(self, side: usize, [own, other]: [f64; 2], slope: f64) -> f64 {
        if slope == 0.0 { 0.0 } else { slope * (other / self.lengths - self.cosine * own / self.squares[side]) }
    }
}

/// Binds the loss to its operands.
pub(in crate::kernels) fn bind(
    criterion: &Criterion,
    operands: &mut Operands<'_>,
    x: Logits,
    mut loss: Total,
) -> Bound {
    let Criterion { outer, classes, weight, .. } = *criterion;
    let (pairs, length) = (count(&[operands.batch(), outer]), count(&[classes]));
    let mut sides = [x, Logits::new(operands, 1, count(&[operands.batch(), outer, classes]))?];
    let targets = operands.source(Slot::Target, pairs)?;
    // The sum is computed in double precision, without the scratch memory.
    if operands.writes(Slot::Workspace) {
        operands.target(Slot::Workspace, pairs)?;
    }
    let (margin, weights) = (criterion.number(), Weights::new(criterion, operands)?);
    kernel(move |_| {
        let share = weight / weights.divisor();
        let mut sum = 0.0;
        for (pair, &target) in targets.get().iter().enumerate() {
            let mut vectors = sides.each_mut().map(|side| Vector::of(side, pair * length..(pair + 1) * length));
            let angle = Angle::new(vectors[0].values(), vectors[1].values());
            let [term, slope] = angle.term(target, margin).map(|number| number * weights.of(pair));
            sum += term;
            for i in 0..length {
                let [x, y] = vectors.each_ref().map(|vector| f64::from(vector.values()[i]));
                vectors[0].put(i, angle.slope(0, [x, y], slope * share));
                vectors[1].put(i, angle.slope(1, [y, x], slope * share));
            }
        }
        loss.put(sum * share);
    })
}
