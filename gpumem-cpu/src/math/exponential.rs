//! The exponential function and its relatives.
//!
//! `x = n * ln(2) + r` with `|r| <= ln(2) / 2`, and `exp(r) = 1 + r + r^2 * q(r)` with a polynomial `q`, which was fitted so that the
//! largest error is smallest. The power of two is made of exponent bits.

use super::{polynomial, select};

/// The number whose addition moves the integer part into the lowest bits.
const SHIFT: f32 = 12_582_912.0;

/// `ln(2)` in two parts. The first is so short that its multiples by up to 2^15 are exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// Coefficients of `(exp(r) - 1 - r) / r^2`.
const REST: [f32; 5] = [0.001_394_601_7, 0.008_366_354, 0.041_666_29, 0.166_665_45, 0.5];

/// A number as `n * ln(2) + r + low`, with the rounding error `low` of `r`.
struct Reduced {
    /// The integer `n` in the lowest 9 bits.
    bits: u32,
    r: f32,
    low: f32,
}

/// Splits a number of at most 150 in magnitude.
#[inline(always)]
fn reduce(x: f32) -> Reduced {
    let shifted = x * std::f32::consts::LOG2_E + SHIFT;
    let whole = shifted - SHIFT;
    let (exact, rest) = (x - whole * LN_2[0], whole * LN_2[1]);
    let r = exact - rest;
    Reduced { bits: shifted.to_bits(), r, low: (exact - r) - rest }
}

impl Reduced {
    /// Returns `exp(r + low) - 1`.
    #[inline(always)]
    fn expm1(&self) -> f32 {
        self.r + (self.r * self.r * polynomial(self.r, REST) + self.low)
    }

    /// Returns `2^(n + more)`, which must be a normal number.
    #[inline(always)]
    fn power(&self, more: i32) -> f32 {
        power(self.bits, more)
    }
}

/// Returns `2^(n + more)` for an `n` in the lowest 9 bits. It must be a normal number.
#[inline(always)]
fn power(bits: u32, more: i32) -> f32 {
    // The shift drops all other bits.
    f32::from_bits((bits << 23).wrapping_add(((127 + more) as u32) << 23))
}

/// Returns `2^n * x`, rounded once even if the result is subnormal, for an `n` from -180 to 60 in the lowest 9 bits.
#[inline(always)]
pub(super) fn scale_down(x: f32, bits: u32) -> f32 {
    /// `2^-64`.
    const LAST: f32 = 1.0 / 18_446_744_073_709_551_616.0;
    x * power(bits, 64) * LAST
}

/// Returns `exp(x)`. It is 0 or infinity if the result is too small or too large, and NaN for NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let reduced = reduce(x.clamp(-104.0, 89.0));
    let near = 1.0 + reduced.expm1();
    // One factor alone reaches neither the smallest numbers nor the largest.
    let above = near * reduced.power(-1) * 2.0;
    select(x < 0.0, scale_down(near, reduced.bits), above)
}

/// Returns `exp(x)` of a number that is not positive.
#[inline(always)]
pub(super) fn exp_below(x: f32) -> f32 {
    let reduced = reduce(select(x < -104.0, -104.0, x));
    scale_down(1.0 + reduced.expm1(), reduced.bits)
}

/// Returns `exp(x)` of a number from -80 to 80.
#[inline(always)]
pub(super) fn exp_near(x: f32) -> f32 {
    let reduced = reduce(x);
    (1.0 + reduced.expm1()) * reduced.power(0)
}

/// Returns `exp(-x^2 / 2)` for numbers of at most 15 in magnitude, as a number near 1 and the bits of an exponent of 2.
#[inline(always)]
pub(super) fn bell(x: f32) -> (f32, u32) {
    // The square has more digits than a number holds. That of 12 digits is exact, and the rest too small for its rounding to matter.
    let high = f32::from_bits(x.to_bits() & 0xFFFF_F000);
    let (square, rest) = (-0.5 * (high * high), 0.5 * ((x - high) * (x + high)));
    let shifted = square * std::f32::consts::LOG2_E + SHIFT;
    let whole = shifted - SHIFT;
    let r = (square - whole * LN_2[0]) - (whole * LN_2[1] + rest);
    (1.0 + (r + r * r * polynomial(r, REST)), shifted.to_bits())
}

/// Returns `exp(x) - 1`, also where `exp(x)` is near 1.
#[inline(always)]
pub(crate) fn expm1(x: f32) -> f32 {
    let reduced = reduce(x.clamp(-30.0, 89.0));
    let near = reduced.expm1();
    // Half of the power, since 2^128 is no number. It is 1/2 where `near` is the result already, which may be subnormal.
    let half = reduced.power(-1);
    let far = 2.0 * (half * near + (half - 0.5));
    select(half == 0.5, near, far).copysign(x)
}

/// Returns the hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    const SERIES: [f32; 5] = [-0.005_704_988_7, 0.020_639_09, -0.053_739_715, 0.133_314_42, -0.333_332_8];
    let (size, square) = (x.abs(), x * x);
    let near = size + size * square * polynomial(square, SERIES);
    // From 10 on the result is 1.
    let far = 1.0 - 2.0 / (1.0 + exp_near(2.0 * select(size > 10.0, 10.0, size)));
    select(size < 0.625, near, far).copysign(x)
}

/// Returns `1 / (1 + exp(-x))`, also if `exp(-x)` is infinite.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    // `exp(-|x|)` is at most 1, so a small result is a quotient of small numbers.
    let small = exp_below(-x.abs());
    let sum = 1.0 + small;
    let quotient = select(x < 0.0, small, 1.0) / sum;
    // The sum lost as much as a unit in the last place. That is nearly the share of the quotient that is too much.
    quotient - quotient * ((1.0 - sum) + small)
}
