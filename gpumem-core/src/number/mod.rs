//! Numbers: formats in memory, roles of tensors, quantisation to 8 and 4 bits, and random numbers.

pub mod double;
pub mod dynamic_8bit;
mod format;
mod half;
pub mod quantized;
pub mod random;
mod role;

pub use format::{Format, Half, Precision};
pub(crate) use half::put_words;
pub use quantized::Coding;
pub use role::Role;

/// Returns `1 / sqrt(n)` by Newton's iteration, since `core` has no square root.
pub(crate) fn inverse_sqrt(n: u64) -> f64 {
    let n = n.max(1) as f64;
    let mut root = n;
    for _ in 0..64 {
        root = 0.5 * (root + n / root);
    }
    1.0 / root
}
