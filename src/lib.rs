//! If it compiles, it fits.
pub use gpumem_core as core;
