//! Numbers: formats in memory, what a tensor's elements are for, and the random sequence.

mod format;
mod half;
pub mod random;
mod role;

pub use format::{Format, Half, Precision};
pub(crate) use half::put_words;
pub use role::Role;
