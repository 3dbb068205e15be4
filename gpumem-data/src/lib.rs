#![cfg_attr(feature = "image", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "image"), doc = "Data sets and the loader.")]

mod batch;
mod dataset;
mod draw;
mod element;
mod error;
#[cfg(feature = "image")]
mod image;
mod loader;
mod sample;
pub mod sets;
mod slot;

pub use batch::{Batch, Batched, BatchedTensor, Position, Tensors};
pub use dataset::{Dataset, FromFn, from_fn};
pub use draw::Draw;
pub use element::{ElementType, Elements};
pub use error::{Error, ErrorKind, Place, Result};
#[cfg(feature = "image")]
pub use image::{MOST_IMAGE, Transform, Transforms};
pub use loader::{Epoch, IGNORED, Loader, LoaderOf};
pub use sample::{Sample, Scratch};
pub use slot::{Slot, Slots};
