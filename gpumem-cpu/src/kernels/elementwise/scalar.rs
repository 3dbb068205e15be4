//! The functions that formulas call: those of [`gpumem_core::program::functions`] by name, and those of users by operator.

pub(in crate::kernels) use super::exponential::exp as fast_exp;
use std::f64::consts::FRAC_1_SQRT_2;

/// Defines functions that the standard library has as methods: `expm1 = exp_m1` is `fn expm1(x: f32) -> f32 { x.exp_m1() }`.
macro_rules! methods {
    ($($name:ident = $method:ident),*) => {
        $(
            #[inline(always)]
            pub(in crate::kernels) fn $name(x: f32) -> f32 {
                x.$method()
            }
        )*
    };
}
methods! {
    abs = abs, cos = cos, exp = exp, expm1 = exp_m1, floor = floor, log = ln, log1p = ln_1p, round = round_ties_even, sin = sin,
    sqrt = sqrt, tanh = tanh
}

/// Returns the error function of `x`.
pub(in crate::kernels) fn erf(x: f32) -> f32 {
    libm::erff(x)
}

/// Returns `x` to the power of `exponent`.
#[inline(always)]
pub(in crate::kernels) fn pow(x: f32, exponent: f32) -> f32 {
    x.powf(exponent)
}

/// Returns -1 or 1, or `x` itself if it is 0 or NaN.
#[inline(always)]
pub(in crate::kernels) fn sign(x: f32) -> f32 {
    if x == 0.0 || x.is_nan() { x } else { x.signum() }
}

/// Returns the smaller number, or NaN if one of them is NaN.
#[inline(always)]
pub(in crate::kernels) fn min(a: f32, b: f32) -> f32 {
    if a < b || a.is_nan() { a } else { b }
}

/// Returns the larger number, or NaN if one of them is NaN.
#[inline(always)]
pub(in crate::kernels) fn max(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

/// Returns the number between two bounds that is nearest to `x`. A NaN stays NaN.
#[inline(always)]
pub(in crate::kernels) fn clamp(x: f32, least: f32, most: f32) -> f32 {
    x.clamp(least, most)
}

/// Returns `y` if it is NaN, else `other`.
#[inline(always)]
pub(in crate::kernels) fn nan_or(y: f32, other: f32) -> f32 {
    if y.is_nan() { y } else { other }
}

/// Returns `x` as a tensor of activations stores it, which are in f32 on the CPU.
#[inline(always)]
pub(in crate::kernels) fn stored(x: f32) -> f32 {
    x
}

/// Returns `1 / (1 + exp(-x))`, also if `exp(-x)` is infinite.
#[inline(always)]
pub(in crate::kernels) fn sigmoid(x: f32) -> f32 {
    // `exp(-|x|)` is at most 1, so a small result is a quotient of small numbers.
    let small = fast_exp(-x.abs());
    (if x < 0.0 { small } else { 1.0 }) / (1.0 + small)
}

/// Returns `log(1 + exp(x))` without large intermediate values. A NaN stays NaN.
#[inline]
pub(in crate::kernels) fn softplus(x: f32) -> f32 {
    let above = if x < 0.0 { 0.0 } else { x };
    above + (-x.abs()).exp().ln_1p()
}

/// Returns `x * Phi(x)`, with the normal distribution function `Phi`.
#[inline]
pub(in crate::kernels) fn gelu(x: f32) -> f32 {
    let x = f64::from(x);
    (0.5 * x * erfc(-x * FRAC_1_SQRT_2)) as f32
}

/// Returns the slope of [`gelu`].
#[inline]
pub(in crate::kernels) fn gelu_slope(x: f32) -> f32 {
    /// `1 / sqrt(2 * pi)`.
    const DENSITY: f64 = 0.398_942_280_401_432_7;
    let x = f64::from(x);
    (0.5 * erfc(-x * FRAC_1_SQRT_2) + x * DENSITY * (-0.5 * x * x).exp()) as f32
}

/// Returns `erfc(x)` with a relative error below 1.2e-7 everywhere: `t * exp(-x^2 + p(t))` with `t = 1 / (1 + |x| / 2)`, the
/// Chebyshev fit of Press, Teukolsky, Vetterling and Flannery, "Numerical Recipes", section 6.2.
fn erfc(x: f64) -> f64 {
    const FIT: [f64; 10] = [
        0.17087277,
        -0.82215223,
        1.48851587,
        -1.13520398,
        0.27886807,
        -0.18628806,
        0.09678418,
        0.37409196,
        1.00002368,
        -1.26551223,
    ];
    let t = 1.0 / (1.0 + 0.5 * x.abs());
    let fit = FIT.iter().fold(0.0, |sum, coefficient| sum * t + coefficient);
    let tail = t * (fit - x * x).exp();
    if x >= 0.0 { tail } else { 2.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The series `2 / sqrt(pi) * exp(-x^2) * sum of 2^n x^(2n+1) / (1 * 3 * .. * (2n+1))`, whose terms are all positive.
    fn erf_by_series(x: f64) -> f64 {
        let (mut term, mut sum) = (x, 0.0);
        for n in 0..200 {
            sum += term;
            term *= 2.0 * x * x / f64::from(2 * n + 3);
        }
        2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
    }

    #[test]
    fn the_error_function_agrees_with_its_series() {
        for step in -40..=40 {
            let x = f64::from(step) / 10.0;
            let expected = 1.0 - erf_by_series(x);
            assert!((erfc(x) - expected).abs() <= 1.3e-7 * expected.abs() + 1e-15, "{x}: {} {expected}", erfc(x));
        }
    }
}
