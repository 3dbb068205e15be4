//! Normalisation.

mod batch_norm2d;
mod layer_norm;

pub use batch_norm2d::BatchNorm2d;
pub use layer_norm::LayerNorm;
