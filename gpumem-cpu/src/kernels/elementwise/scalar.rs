//! The functions that formulas call: those of [`gpumem_core::program::functions`] by name, and those of users by operator.

pub(in crate::kernels) use crate::math::{
    cos, erf, exp, exp as fast_exp, expm1, gelu, gelu_slope, log, log1p, pow, sigmoid, sin, softplus, tanh,
};

/// Defines functions that the standard library has as methods: `round = round_ties_even` is
/// `fn round(x: f32) -> f32 { x.round_ties_even() }`.
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
methods! { abs = abs, floor = floor, round = round_ties_even, sqrt = sqrt }

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
