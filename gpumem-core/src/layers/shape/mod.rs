//! `Flatten`, `Upsample(2)`, `Mean(1)`: layers that change shapes.

mod flatten;
mod glu;
mod pad;
mod permute;
mod reduce;
mod reshape;
mod select;
mod slice;
mod transpose;
mod upsample;

pub use flatten::Flatten;
pub use glu::Glu;
pub use pad::Pad;
pub use permute::Permute;
pub use reduce::{Max, Mean, Sum};
pub use reshape::Reshape;
pub use select::Select;
pub use slice::Slice;
pub use transpose::Transpose;
pub use upsample::Upsample;

use super::Entry;

/// The layers of the family.
pub(super) const LAYERS: &[Entry] = &[
    Entry::of::<Flatten>(),
    Entry::of::<Upsample>(),
    Entry::of::<Pad>(),
    Entry::of::<Reshape>(),
    Entry::of::<Permute>(),
    Entry::of::<Transpose>(),
    Entry::of::<Slice>(),
    Entry::of::<Select>(),
    Entry::of::<Glu>(),
    Entry::of::<Mean>(),
    Entry::of::<Sum>(),
    Entry::of::<Max>(),
];
