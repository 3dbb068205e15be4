//! The error function, and the normal distribution that `Gelu` needs.

use super::exponential::{bell, exp_near, scale_down};
use super::{polynomial, select};

/// Returns the error function.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    /// Coefficients of `(erf(x) - x) / x` by powers of `x^2`, and of `(log(erfc(x)) + x) / x` by powers of `x`. The fits are
    /// by Norbert Juffa.
    const NEAR: [f32; 6] = [-5.967_617e-4, 0.004_991_194_2, -0.026_768_135, 0.112_819_925, -0.376_125_34, 0.128_379_17];
    const FAR: [f32; 7] =
        [-1.728_534_7e-5, 3.831_971_3e-4, -0.003_883_964, 0.024_254_622, -0.106_777_88, -0.634_846_7, -0.128_717_51];
    let size = x.abs();
    let near = size + size * polynomial(size * size, NEAR);
    // From 4 on the result is 1.
    let bounded = select(size > 4.0, 4.0, size);
    let far = 1.0 - exp_near(bounded * polynomial(bounded, FAR) - bounded);
    select(size > 0.927_734_4, far, near).copysign(x)
}

/// A normal distribution at `-|x|`: `Phi(-|x|) = ratio * bell * 2^n`, and the density is `bell * 2^n / sqrt(2 * pi)`, with `n` in the lowest bits.
struct Normal {
    ratio: f32,
    bell: f32,
    bits: u32,
}

/// Returns the normal distribution at `-size`, which is from 0 to 15.
#[inline(always)]
fn normal(size: f32) -> Normal {
    /// Coefficients of two polynomials, whose quotient is `Phi(-x) * exp(x^2 / 2)` for `x` from 0 to 15, where `x * Phi(-x)` has vanished. The
    /// fit's largest relative error is 7e-9. No coefficient is negative, so that rounding errors stay small.
    const ABOVE: [f32; 5] = [0.004_153_251_6, 0.040_881_276, 0.183_969_57, 0.439_284_03, 0.5];
    const BELOW: [f32; 6] = [0.010_410_546, 0.102_480_28, 0.471_409_86, 1.205_550_1, 1.676_453, 1.0];
    let (bell, bits) = bell(size);
    Normal { ratio: polynomial(size, ABOVE) / polynomial(size, BELOW), bell, bits }
}

/// Returns `|x|`, but at most 15, beyond which the density is 0.
#[inline(always)]
fn bounded(x: f32) -> f32 {
    let size = x.abs();
    select(size > 15.0, 15.0, size)
}

/// Returns `x * Phi(x)`, with the normal distribution function `Phi`. Its limit at negative infinity is 0.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    let size = bounded(x);
    let Normal { ratio, bell, bits } = normal(size);
    // A power of two is multiplied last, since the other factors would make a subnormal number lose its digits.
    let below = scale_down(size * (ratio * bell), bits);
    select(x < 0.0, -0.0, x) - below
}

/// Returns the slope of [`gelu`].
#[inline(always)]
pub(crate) fn gelu_slope(x: f32) -> f32 {
    /// `1 / sqrt(2 * pi)`.
    const DENSITY: f32 = 0.398_942_3;
    let size = bounded(x);
    let Normal { ratio, bell, bits } = normal(size);
    let below = scale_down((ratio - size * DENSITY) * bell, bits);
    select(x < 0.0, below, 1.0 - below)
}
