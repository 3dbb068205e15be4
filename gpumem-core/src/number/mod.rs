//! Numbers: formats in memory, what a tensor's elements are for, numbers of 8 and of 4 bits, and the random sequence.

pub mod coding;
pub mod double;
pub mod dynamic;
mod format;
mod half;
pub mod random;
mod role;

pub use coding::Coding;
pub use format::{Format, Half, Precision};
pub(crate) use half::put_words;
pub use role::Role;

/// `1 / sqrt(n)` by Newton's iteration: `core` has no square root.
pub(crate) fn inverse_sqrt(n: u64) -> f64 {
    let n = n.max(1) as f64;
    let mut root = n;
    for _ in 0..64 {
        root = 0.5 * (root + n / root);
    }
    1.0 / root
}
