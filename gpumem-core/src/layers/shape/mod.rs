//! `Flatten`, `Upsample(2)`: layers that change shapes.

mod flatten;
mod upsample;

pub use flatten::Flatten;
pub use upsample::Upsample;

use super::Entry;

/// The layers of the family.
pub(super) const LAYERS: &[Entry] = &[Entry::of::<Flatten>(), Entry::of::<Upsample>()];
