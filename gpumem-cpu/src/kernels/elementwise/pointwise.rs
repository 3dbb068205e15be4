//! Elementwise functions: `y = f(x)`, and `dx = dy * f'`. The derivative is computed from either `x` or `y`, whichever the function keeps.
//!
//! Closures of loops own the function, so that the compiler knows that its arguments do not change in the loop.

use super::functions::{Scalar, Use, with};
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::program::Slot;
use gpumem_core::program::functions::Kept;
use gpumem_core::program::ops::Pointwise;
use gpumem_core::shape::Shape;

/// Returns the elements of a batch of samples of this shape.
pub(in crate::kernels) fn elements(shape: Shape, operands: &Operands<'_>) -> usize {
    count(&[operands.batch(), count(shape.dims()) as u64])
}

struct Forward<'a, 'o>(usize, &'a mut Operands<'o>);

impl Use for Forward<'_, '_> {
    type Out = Bound;

    fn apply(self, function: impl Scalar) -> Bound {
        let mut pair = self.1.pair(Slot::Input(0), Slot::Output, self.0)?;
        kernel(move |_| pair.map(false, move |_, x| function.value(x)))
    }
}

/// Computes `y = f(x)`, in place or not.
pub(in crate::kernels) fn forward(op: &Pointwise, operands: &mut Operands<'_>) -> Bound {
    with(op, Forward(elements(op.shape, operands), operands))
}

struct Backward<'a, 'o>(usize, Option<Slot>, &'a mut Operands<'o>);

impl Use for Backward<'_, '_> {
    type Out = Bound;

    fn apply(self, function: impl Scalar) -> Bound {
        let (mut pair, accumulate) = self.2.gradients(0, self.0)?;
        match self.1 {
            Some(kept) => {
                let kept = self.2.source(kept, self.0)?;
                kernel(move |_| pair.zip(accumulate, kept.get(), move |dy, kept| dy * function.slope(kept)))
            }
            None => kernel(move |_| pair.map(accumulate, move |_, dy| dy * function.slope(0.0))),
        }
    }
}

/// Computes `dx = dy * f'`, in place or not.
pub(in crate::kernels) fn backward(op: &Pointwise, operands: &mut Operands<'_>) -> Bound {
    let kept = match op.function.row().kept {
        Kept::Input => Some(Slot::Input(0)),
        Kept::Output => Some(Slot::Output),
        Kept::Nothing => None,
    };
    with(op, Backward(elements(op.shape, operands), kept, operands))
}
