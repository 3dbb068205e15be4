//! Reads models that PyTorch exported.
//!
//! **Files.** `.pt2`, as `torch.export.save` writes them, and ONNX. Nothing in a file is executed, and no length in it is believed
//! before memory is taken.

pub mod batch;
pub mod bound;
mod error;
pub mod fold;
pub mod lift;
mod memory;
pub mod model;
pub mod read;
pub mod torch;
pub mod tree;
pub mod weights;
pub mod write;

pub use error::Error;
use model::Model;
pub use read::onnx::Onnx;
pub use read::pt2::Pt2;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Reads a model of any format: what the file begins with tells it, not its name.
///
/// For inference, BatchNorm may be part of the convolutions, as most exports of ONNX have it.
///
/// # Errors
/// Refuses files of another format, damaged ones, and those of a version that is not read.
pub fn open(path: &Path, is_for_inference: bool) -> Result<Model, Error> {
    if is_archive(path)? {
        return Pt2::open(path)?.model(None, &[]);
    }
    let is_named_otherwise = path.extension().is_some_and(|ending| ending == "pt2");
    let onnx = Onnx::open(path).map_err(|error| match is_named_otherwise {
        true => Error::new(path, "is damaged, or no archive of `torch.export.save`; copy it again, or export it again"),
        false => error,
    })?;
    onnx.for_inference(is_for_inference).model(None, &[])
}

/// True for a zip archive, as `torch.export.save` writes it.
fn is_archive(path: &Path) -> Result<bool, Error> {
    let mut first = [0; 2];
    let read = File::open(path).and_then(|mut file| file.read(&mut first));
    let count = read.map_err(|error| Error::new(path, format!("cannot be read: {error}")))?;
    Ok(first[..count] == *b"PK")
}
