//! Layers that change shapes, as `Flatten`, `Upsample(2)` and `Mean(1)`.

mod channel_shuffle;
mod expand;
mod flatten;
mod glu;
mod norm;
mod pad;
mod permute;
mod pixel_shuffle;
mod pixel_unshuffle;
mod reduce;
mod reshape;
mod roll;
mod select;
mod slice;
mod squeeze;
mod top_k;
mod transpose;
mod unsqueeze;
mod upsample;

pub use channel_shuffle::ChannelShuffle;
pub use expand::Expand;
pub use flatten::Flatten;
pub use glu::Glu;
pub use norm::Norm;
pub use pad::Pad;
pub use permute::Permute;
pub use pixel_shuffle::PixelShuffle;
pub use pixel_unshuffle::PixelUnshuffle;
pub use reduce::{Max, Mean, Sum};
pub(super) use reduce::{left, reduced};
pub use reshape::Reshape;
pub use roll::Roll;
pub use select::Select;
pub use slice::Slice;
pub(super) use slice::part;
pub use squeeze::Squeeze;
pub use top_k::TopK;
pub(super) use top_k::places;
pub use transpose::Transpose;
pub use unsqueeze::Unsqueeze;
pub use upsample::Upsample;

use super::Entry;

/// The layers of this family.
pub(super) const LAYERS: &[Entry] = &[
    Entry::of::<Flatten>(),
    Entry::of::<Upsample>(),
    Entry::of::<Pad>(),
    Entry::of::<Reshape>(),
    Entry::of::<Permute>(),
    Entry::of::<Transpose>(),
    Entry::of::<Squeeze>(),
    Entry::of::<Unsqueeze>(),
    Entry::of::<Roll>(),
    Entry::of::<PixelShuffle>(),
    Entry::of::<PixelUnshuffle>(),
    Entry::of::<ChannelShuffle>(),
    Entry::of::<Slice>(),
    Entry::of::<Select>(),
    Entry::of::<Glu>(),
    Entry::of::<Mean>(),
    Entry::of::<Sum>(),
    Entry::of::<Max>(),
    Entry::of::<Norm>(),
    Entry::of::<Expand>(),
    Entry::of::<TopK>(),
];
