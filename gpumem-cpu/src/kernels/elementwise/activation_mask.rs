//! Functions with two slopes that keep one bit per element: `y = f(x)`, and `dx = dy * f'`. The bit selects the slope.
//!
//! The bit of element `i` is bit `i % 8` of byte `i / 8`. It is 1 if the slope at `y[i]` differs from the slope at 0.

use crate::kernels::elementwise::functions::{Scalar, Use, with};
use crate::kernels::elementwise::pointwise::elements;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Pair};
use crate::parallel::GRAIN;
use crate::simd::wide;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Rectifier;
use rayon::prelude::*;

/// Returns the bytes of the tensor of bits, which may have a few more than `length` elements need.
fn bytes(slot: Slot, length: usize, operands: &Operands<'_>) -> Result<usize, Error> {
    let bytes = operands.any_length(slot).filter(|&bytes| bytes >= length.div_ceil(8));
    bytes.ok_or(Error::Damaged("a tensor of bits has fewer than there are elements"))
}

struct Forward<'a, 'o>(usize, &'a mut Operands<'o>);

impl Use for Forward<'_, '_> {
    type Out = Bound;

    fn apply(self, function: impl Scalar) -> Bound {
        let Forward(length, operands) = self;
        let mut pair = operands.pair(Slot::Input(0), Slot::Output, length)?;
        if !operands.writes(Slot::Saved(0)) {
            return kernel(move |_| pair.map(false, move |_, x| function.value(x)));
        }
        let bytes = bytes(Slot::Saved(0), length, operands)?;
        let mut bits = operands.byte_target(Slot::Saved(0), bytes)?;
        let below = function.slope(0.0);
        // A NaN has a NaN slope, which differs from every slope.
        let is_other = move |y: f32| function.slope(y) != below;
        kernel(move |_| {
            let bits = &mut bits.get()[..length.div_ceil(8)];
            apply(&mut pair, bits, &move |x| function.value(x), &is_other);
        })
    }
}

/// Computes the function piece by piece, and the bits of each piece while it is in the cache.
fn apply(
    pair: &mut Pair,
    bits: &mut [u8],
    value: &(impl Fn(f32) -> f32 + Sync),
    is_other: &(impl Fn(f32) -> bool + Sync),
) {
    let (source, target) = pair.get();
    let pieces = target.par_chunks_mut(GRAIN).zip(bits.par_chunks_mut(GRAIN / 8)).enumerate();
    pieces.for_each(|(piece, (target, bits))| {
        match source.map(|source| &source[piece * GRAIN..][..target.len()]) {
            Some(source) => wide(|| target.iter_mut().zip(source).for_each(|(y, &x)| *y = value(x))),
            None => wide(|| target.iter_mut().for_each(|y| *y = value(*y))),
        }
        wide(|| {
            for (byte, eight) in bits.iter_mut().zip(target.chunks(8)) {
                *byte = (0..).zip(eight).fold(0, |byte, (bit, &y)| byte | u8::from(is_other(y)) << bit);
            }
        });
    });
}

/// Computes `y` from `x`, in place or not, and the bits.
pub(in crate::kernels) fn forward(op: &Rectifier, operands: &mut Operands<'_>) -> Bound {
    with(&op.of, Forward(elements(op.of.shape, operands), operands))
}

struct Backward<'a, 'o>([f32; 2], usize, &'a mut Operands<'o>);

impl Use for Backward<'_, '_> {
    type Out = Bound;

    fn apply(self, function: impl Scalar) -> Bound {
        let Backward(sides, length, operands) = self;
        let slopes = sides.map(|side| function.slope(side));
        let (mut pair, accumulate) = operands.gradients(0, length)?;
        let bits = operands.bytes(Slot::Saved(0), bytes(Slot::Saved(0), length, operands)?)?;
        kernel(move |_| {
            let bits = bits.get();
            // Each piece begins at a whole byte.
            let make = |first: usize, made: &mut [f32]| {
                wide(|| {
                    for (eight, byte) in made.chunks_mut(8).zip(&bits[first / 8..]) {
                        (0..).zip(eight).for_each(|(bit, slope)| *slope = slopes[usize::from(byte >> bit & 1)]);
                    }
                });
            };
            pair.zip_made(accumulate, make, |dy, slope| dy * slope);
        })
    }
}

/// Computes `dx` from `dy`, in place or not.
pub(in crate::kernels) fn backward(op: &Rectifier, operands: &mut Operands<'_>) -> Bound {
    with(&op.of, Backward(op.sides(), elements(op.of.shape, operands), operands))
}
