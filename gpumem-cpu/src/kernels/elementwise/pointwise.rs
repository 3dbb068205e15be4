//! Elementwise functions: `y = f(x)`, and `dx = dy * f'`. The derivative is computed from either `x` or `y`, whichever the function keeps.
//!
//! Loops are types that own the function. So the compiler knows that its arguments do not change in the loop, and inlines the function, however
//! long, into the code for each instruction set.

use super::functions::{Scalar, Use, with};
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Pair, count};
use crate::parallel::{self, PIECE};
use crate::simd::{Loop, wide};
use gpumem_core::program::Slot;
use gpumem_core::program::functions::Kept;
use gpumem_core::program::ops::Pointwise;
use gpumem_core::shape::Shape;

/// Returns the elements of a batch of samples of this shape.
pub(in crate::kernels) fn elements(shape: Shape, operands: &Operands<'_>) -> usize {
    count(&[operands.batch(), count(shape.dims()) as u64])
}

/// Values of a piece: `y = f(x)`. Without `x`, `y` holds it.
struct Values<'a, F> {
    x: Option<&'a [f32]>,
    y: &'a mut [f32],
    function: F,
}

impl<F: Scalar> Loop for Values<'_, F> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Values { x, y, function } = self;
        match x {
            None => {
                for y in y {
                    *y = function.value(*y);
                }
            }
            Some(x) => {
                for (y, &x) in y.iter_mut().zip(x) {
                    *y = function.value(x);
                }
            }
        }
    }
}

fn values(pair: &mut Pair, function: impl Scalar) {
    let (source, target) = pair.get();
    parallel::pieces(source, target, PIECE, |_, x, y| {
        wide(Values { x, y, function });
        0.0
    });
}

/// Gradients of a piece: `dx (+)= dy * slope(kept)`. Without `dy`, `dx` holds it.
struct Gradients<'a, F> {
    dy: Option<&'a [f32]>,
    kept: &'a [f32],
    dx: &'a mut [f32],
    accumulate: bool,
    function: F,
}

impl<F: Scalar> Loop for Gradients<'_, F> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Gradients { dy, kept, dx, accumulate, function } = self;
        match dy {
            None => {
                for (dx, &kept) in dx.iter_mut().zip(kept) {
                    *dx *= function.slope(kept);
                }
            }
            Some(dy) if accumulate => {
                for ((dx, dy), &kept) in dx.iter_mut().zip(dy).zip(kept) {
                    *dx += dy * function.slope(kept);
                }
            }
            Some(dy) => {
                for ((dx, dy), &kept) in dx.iter_mut().zip(dy).zip(kept) {
                    *dx = dy * function.slope(kept);
                }
            }
        }
    }
}

fn gradients(pair: &mut Pair, accumulate: bool, kept: &[f32], function: impl Scalar) {
    let (source, target) = pair.get();
    parallel::pieces(source, target, PIECE, |piece, dy, dx| {
        let kept = &kept[piece * PIECE..][..dx.len()];
        wide(Gradients { dy, kept, dx, accumulate, function });
        0.0
    });
}

struct Forward<'a, 'o>(usize, &'a mut Operands<'o>);

impl Use for Forward<'_, '_> {
    type Out = Bound;

    fn apply(self, function: impl Scalar) -> Bound {
        let mut pair = self.1.pair(Slot::Input(0), Slot::Output, self.0)?;
        kernel(move |_| values(&mut pair, function))
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
                kernel(move |_| gradients(&mut pair, accumulate, kept.get(), function))
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
