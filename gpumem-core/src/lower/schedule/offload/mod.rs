//! Offloading: tensors in host memory, and the operations that copy them into the arena and back.

mod activations;
mod states;

pub use crate::lower::schedule::bus::BUS;
pub(in crate::lower) use activations::{most_parked, park};
pub(in crate::lower) use states::{check, stream};
pub use states::{of_others, without_states};
