//! Functions in double precision, for powers and losses: those of the standard library are no arithmetic that the compiler vectorises.

use std::f64::consts::{LN_2, LOG2_E};

/// The number whose addition moves the integer part into the lowest bits.
const SHIFT: f64 = 6_755_399_441_055_744.0;

/// Returns the natural logarithm of a positive normal number, to within 1e-14 of it.
#[inline(always)]
pub(super) fn log_normal(x: f64) -> f64 {
    /// The bits of `sqrt(1/2)`.
    const ROOT: u64 = 0x3FE6_A09E_667F_3BCD;
    let bits = x.to_bits().wrapping_sub(ROOT);
    let mantissa = f64::from_bits((bits & 0x000F_FFFF_FFFF_FFFF).wrapping_add(ROOT));
    // `2^52 + 2^51 + n` has the integer `n` in its lowest bits.
    let n = f64::from_bits(((bits as i64) >> 52).wrapping_add(SHIFT.to_bits() as i64) as u64) - SHIFT;
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut series = 1.0 / 17.0;
    for odd in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        series = series * square + 1.0 / odd;
    }
    n * LN_2 + (2.0 * s + 2.0 * s * square * series)
}

/// Returns the exponential function of a number from -708 to 709, to within 1e-12 of it.
#[inline(always)]
pub(super) fn exp_normal(x: f64) -> f64 {
    let shifted = x * LOG2_E + SHIFT;
    let r = x - (shifted - SHIFT) * LN_2;
    let mut series = 1.0 / 3_628_800.0;
    for inverse in [362_880.0, 40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        series = series * r + 1.0 / inverse;
    }
    series * f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52))
}

/// Returns `exp(x)`: 0 below -708, and infinity above 709.
#[inline(always)]
pub(crate) fn exp_double(x: f64) -> f64 {
    let result = exp_normal(x.clamp(-708.0, 709.0));
    let result = if x < -708.0 { 0.0 } else { result };
    if x > 709.0 { f64::INFINITY } else { result }
}

/// Returns the natural logarithm: negative infinity for 0, NaN for negative numbers. Subnormal numbers count as 0.
#[inline(always)]
pub(crate) fn log_double(x: f64) -> f64 {
    let result = if x < f64::INFINITY { log_normal(x) } else { x };
    let result = if x < f64::MIN_POSITIVE { f64::NEG_INFINITY } else { result };
    if x < 0.0 { f64::NAN } else { result }
}

/// Returns `log(1 + x)` of a number of at least 0, also where `x` is near 0.
#[inline(always)]
pub(crate) fn log1p_double(x: f64) -> f64 {
    let sum = 1.0 + x;
    // The part that the sum lost, if the sum is finite.
    let lost = (x - (sum - 1.0)) / sum;
    if sum < f64::INFINITY { log_normal(sum) + lost } else { sum }
}
