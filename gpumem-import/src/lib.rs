//! Reads models that PyTorch exported.
//!
//! **Files.** `.pt2`, as `torch.export.save` writes them, and ONNX. Nothing in a file is executed, and no length in it is believed
//! before memory is taken.

pub mod batch;
mod error;
pub mod fold;
pub mod lift;
pub mod model;
pub mod read;
pub mod torch;
pub mod tree;

pub use error::Error;
pub use read::onnx::Onnx;
pub use read::pt2::Pt2;
