//! Powers, as `exp(exponent * log(x))` in double precision: a logarithm's error grows with the exponent.

use std::f64::consts::{LN_2, LOG2_E};

/// The number whose addition moves the integer part into the lowest bits.
const SHIFT: f64 = 6_755_399_441_055_744.0;

/// Returns the logarithm of a positive number that was an `f32`, to within 1e-14 of it.
#[inline(always)]
fn log(x: f64) -> f64 {
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

/// Returns the exponential function of a number from -200 to 200.
#[inline(always)]
fn exp(x: f64) -> f64 {
    let shifted = x * LOG2_E + SHIFT;
    let r = x - (shifted - SHIFT) * LN_2;
    let mut series = 1.0 / 3_628_800.0;
    for inverse in [362_880.0, 40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        series = series * r + 1.0 / inverse;
    }
    series * f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52))
}

/// Returns `x` to the power of `exponent`: NaN if `x` is negative and the exponent has a fraction.
#[inline(always)]
pub(crate) fn pow(x: f32, exponent: f32) -> f32 {
    let (size, times) = (f64::from(x.abs()), f64::from(exponent));
    let logarithm = if size == 0.0 { f64::NEG_INFINITY } else { log(size) };
    let logarithm = if size < f64::INFINITY { logarithm } else { size };
    // Both are 1, also of NaN and of infinity.
    let is_one = size == 1.0 || exponent == 0.0;
    let power = if is_one { 0.0 } else { logarithm * times };
    let result = exp(power.clamp(-200.0, 200.0)) as f32;
    let half = 0.5 * exponent;
    let (is_whole, is_even) = (exponent.trunc() == exponent, half.trunc() == half);
    let signed = if is_whole && !is_even { result.copysign(x) } else { result };
    if x < 0.0 && x.is_finite() && !is_whole { f32::NAN } else { signed }
}
