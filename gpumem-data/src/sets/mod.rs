//! Data sets in the formats that they are published in.

mod array;
mod arrays;
pub(crate) mod bytes;
mod idx;
mod npy;

pub use array::{Array, MOST_UNPACKED, Number};
pub use arrays::Arrays;
