//! Readers of files with models.

pub mod onnx;
pub mod pt2;
