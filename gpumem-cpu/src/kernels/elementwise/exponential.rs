//! The exponential function as plain arithmetic, so that the compiler can vectorise it.

/// Returns `exp(x)` to within 2 units in the last place. It is 0 or infinity if the result is too small or too large, and NaN for NaN.
///
/// `x = n * ln(2) + r` with `|r| <= ln(2) / 2`, Taylor's polynomial of degree 7 for `exp(r)`, and `2^n` by its exponent bits,
/// in two factors because one alone cannot reach the smallest numbers.
#[inline(always)]
pub(in crate::kernels) fn exp(x: f32) -> f32 {
    /// The number whose addition moves the integer part into the lowest bits.
    const SHIFT: f32 = 12_582_912.0;
    /// `ln(2)` in two parts. The first is short enough that its multiples are exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    let x = x.clamp(-104.0, 89.0);
    let shifted = x * std::f32::consts::LOG2_E + SHIFT;
    let n = shifted - SHIFT;
    let r = x - n * LN_2[0] - n * LN_2[1];
    let mut series = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        series = series * r + coefficient;
    }
    let n = (shifted.to_bits() as i32).wrapping_sub(SHIFT.to_bits() as i32);
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    series * power(n >> 1) * power(n.wrapping_sub(n >> 1))
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn it_agrees_with_double_precision() {
        for step in -100_000..=88_700 {
            let x = step as f32 * 1e-3;
            let expected = f64::from(x).exp();
            // Below the smallest normal number precision is absolute.
            let unit = (expected * 1.2e-7).max(1.5e-45);
            assert!((f64::from(exp(x)) - expected).abs() <= 2.0 * unit, "{x}: {} {expected}", exp(x));
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-200.0), 0.0);
        assert_eq!(exp(100.0), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
    }
}
