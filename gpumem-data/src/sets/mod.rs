//! Data sets in the formats in which they are published.

mod array;
mod arrays;
pub(crate) mod bytes;
mod cifar;
#[cfg(feature = "image")]
mod folder;
mod idx;
mod npy;
#[cfg(feature = "image")]
mod rows;
#[cfg(feature = "tokenizers")]
mod text;
mod tokens;

pub use array::{Array, MOST_UNPACKED, Number};
pub use arrays::Arrays;
pub use cifar::Cifar;
#[cfg(feature = "image")]
pub use folder::ImageFolder;
#[cfg(feature = "tokenizers")]
pub use text::{tokenize_u16, tokenize_u32};
pub use tokens::Tokens;
