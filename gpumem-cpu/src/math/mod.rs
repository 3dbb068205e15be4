//! Functions of one number, as plain arithmetic without branches, so that the compiler vectorises every loop that calls them.
//!
//! Each is within 2 units in the last place of the exact value for all numbers, with zeros and their signs, subnormal numbers, infinities
//! and NaN. `gelu` is within 6, since below 0 it is a product of several rounded numbers, and its slope, which passes through 0, within 6 units of
//! the larger of its two terms. `tests.rs` holds these bounds.
//!
//! Each has the same bits on every machine. Multiplications and additions are written one by one, and nothing fuses them. Fused they would take
//! 10 to 20 % less time on AVX-512, but a hundred instructions each on a machine that lacks them. No function of the C library is called, since
//! its last bit depends on its version and on the machine.

mod double;
mod error_function;
mod exponential;
mod logarithm;
mod power;
mod rows;
#[cfg(test)]
mod tests;
mod trigonometric;

pub(crate) use double::{exp_double, log_double, log1p_double};
pub(crate) use error_function::{erf, gelu, gelu_slope};
pub(crate) use exponential::{exp, expm1, sigmoid, tanh};
pub(crate) use logarithm::{log, log1p, softplus};
pub(crate) use power::pow;
pub(crate) use rows::{exponentials, sum_of_exponentials};
pub(crate) use trigonometric::{cos, sin};

/// Returns the value of a polynomial, by Horner's rule. Coefficients begin with that of the highest power.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[0];
    for coefficient in &coefficients[1..] {
        sum = sum * x + coefficient;
    }
    sum
}

/// Returns `yes` if the condition holds, else `no`. Both are computed.
#[inline(always)]
fn select(condition: bool, yes: f32, no: f32) -> f32 {
    if condition { yes } else { no }
}
