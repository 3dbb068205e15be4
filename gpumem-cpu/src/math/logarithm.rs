//! The logarithm and its relatives.
//!
//! `x = 2^n * (1 + f)` with `1 + f` from `sqrt(1/2)` to `sqrt(2)`, and `log(1 + f) = f - f^2 / 2 + f^3 * p(f)` with a polynomial `p`.

use super::exponential::exp_below;
use super::{polynomial, select};

/// `ln(2)` in two parts. The first is so short that its multiples by up to 2^15 are exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// The bits of `sqrt(1/2)`.
const ROOT: u32 = 0x3F35_04F3;

/// Splits a normal number into its exponent and `f`.
#[inline(always)]
fn split(x: f32) -> (i32, f32) {
    let bits = x.to_bits().wrapping_sub(ROOT);
    let n = (bits as i32) >> 23;
    (n, f32::from_bits((bits & 0x007F_FFFF).wrapping_add(ROOT)) - 1.0)
}

/// Returns `n * ln(2) + log(1 + f) + low`, where `low` is small.
#[inline(always)]
fn join(n: f32, f: f32, low: f32) -> f32 {
    /// Coefficients of `(log(1 + f) - f + f^2 / 2) / f^3`, from Moshier's Cephes library.
    const SERIES: [f32; 9] = [
        0.070_376_836,
        -0.115_146_1,
        0.116_769_984,
        -0.124_201_41,
        0.142_493_23,
        -0.166_680_58,
        0.200_007_15,
        -0.249_999_94,
        0.333_333_3,
    ];
    let square = f * f;
    let rest = f * square * polynomial(f, SERIES) + (n * LN_2[1] + low);
    (f + (rest - 0.5 * square)) + n * LN_2[0]
}

/// Returns the natural logarithm: negative infinity for 0, NaN for negative numbers.
#[inline(always)]
pub(crate) fn log(x: f32) -> f32 {
    // Subnormal numbers become normal.
    let is_small = x < f32::MIN_POSITIVE;
    let (n, f) = split(select(is_small, x * 8_388_608.0, x));
    let result = join(n as f32 - select(is_small, 23.0, 0.0), f, 0.0);
    special(x, result)
}

/// Returns `log(1 + x)`, also where `x` is near 0.
#[inline(always)]
pub(crate) fn log1p(x: f32) -> f32 {
    let sum = 1.0 + x;
    // The part that the sum lost. Its second form is exact for large numbers, the first for others.
    let lost = select(x < 1.0, x - (sum - 1.0), 1.0 - (sum - x));
    let (n, f) = split(sum);
    special(sum, join(n as f32, f, lost / sum).copysign(x))
}

/// Returns the result for ordinary numbers, and what the logarithm is for all others.
#[inline(always)]
fn special(x: f32, result: f32) -> f32 {
    let result = select(x < f32::INFINITY, result, x);
    let result = select(x == 0.0, f32::NEG_INFINITY, result);
    select(x < 0.0, f32::NAN, result)
}

/// Returns `log(1 + exp(x))` without large intermediate values. A NaN stays NaN.
#[inline(always)]
pub(crate) fn softplus(x: f32) -> f32 {
    select(x < 0.0, 0.0, x) + log1p(exp_below(-x.abs()))
}
