#![cfg_attr(feature = "image", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "image"), doc = "Data sets and the loader.")]

mod batch;
mod dataset;
mod draw;
mod error;
#[cfg(feature = "image")]
mod image;
mod loader;
mod sample;
pub mod sets;

pub use batch::{Batch, Batched, BatchedTensor, Position, Tensors};
pub use dataset::{Dataset, FromFn, from_fn};
pub use draw::Draw;
pub use error::{Error, ErrorKind, Place, Result};
#[cfg(feature = "image")]
pub use image::{MOST_IMAGE, Transform, Transforms};
pub use loader::{Epoch, IGNORED, Loader, LoaderOf};
pub use sample::{ElementType, Elements, Sample, Scratch, Slot, Slots};
