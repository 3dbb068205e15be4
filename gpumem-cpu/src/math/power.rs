//! Powers, as `exp(exponent * log(x))` in double precision: a logarithm's error grows with the exponent.

use super::double::{exp_normal, log_normal};

/// Returns `x` to the power of `exponent`: NaN if `x` is negative and the exponent has a fraction.
#[inline(always)]
pub(crate) fn pow(x: f32, exponent: f32) -> f32 {
    let (size, times) = (f64::from(x.abs()), f64::from(exponent));
    let logarithm = if size == 0.0 { f64::NEG_INFINITY } else { log_normal(size) };
    let logarithm = if size < f64::INFINITY { logarithm } else { size };
    // Both are 1, also of NaN and of infinity.
    let is_one = size == 1.0 || exponent == 0.0;
    let power = if is_one { 0.0 } else { logarithm * times };
    let result = exp_normal(power.clamp(-200.0, 200.0)) as f32;
    let half = 0.5 * exponent;
    let (is_whole, is_even) = (exponent.trunc() == exponent, half.trunc() == half);
    let signed = if is_whole && !is_even { result.copysign(x) } else { result };
    if x < 0.0 && x.is_finite() && !is_whole { f32::NAN } else { signed }
}
