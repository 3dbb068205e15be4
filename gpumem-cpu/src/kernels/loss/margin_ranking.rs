//! Margin ranking loss of two values `x` and `y`, of which the target `t` says which should be larger.
//!
//! ```text
//! max(0, margin - t (x - y))    dx = -t, dy = t, where it is not below 0
//! ```
//!
//! The loss is divided by the divisor of its reduction.

use crate::kernels::loss::values::{Vector, sides};
use crate::kernels::loss::{Logits, Total, Weights};
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::program::{Criterion, Slot};

/// Binds the loss to its operands.
pub(super) fn bind(criterion: &Criterion, operands: &mut Operands<'_>, x: Logits, mut loss: Total) -> Bound {
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
            // A NaN counts as active too. At 0 the slope is 1, as in PyTorch's clamp.
            let is_active = term >= 0.0 || term.is_nan();
            sum += if is_active { term * weights.of(i) } else { 0.0 };
            let slope = if is_active { f64::from(target) * weights.of(i) * share } else { 0.0 };
            values[0].put(i, -slope);
            values[1].put(i, slope);
        }
        loss.put(sum * share);
    })
}
