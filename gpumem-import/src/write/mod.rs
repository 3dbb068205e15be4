//! Writers of files with networks.

pub mod onnx;
mod weights;

pub use weights::Safetensors;
