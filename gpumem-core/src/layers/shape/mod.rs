//! Layers that change shapes.

mod flatten;
mod upsample;

pub use flatten::Flatten;
pub use upsample::Upsample;
