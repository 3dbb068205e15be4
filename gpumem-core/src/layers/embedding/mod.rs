//! Tables of rows, as `Embedding(50257, 768)`.

mod arg_max;
mod class_token;
mod constant;
#[expect(clippy::module_inception, reason = "a layer has a file of its name, in the folder of its family")]
mod embedding;
mod parameter;
mod position_embedding;
mod sinusoidal;

pub use arg_max::ArgMax;
pub use class_token::ClassToken;
pub use constant::Constant;
pub use embedding::Embedding;
pub use parameter::Parameter;
pub use position_embedding::PositionEmbedding;
pub use sinusoidal::{SinusoidalEmbedding, SinusoidalPositions};

use super::Entry;

/// The layers of this family.
pub(super) const LAYERS: &[Entry] = &[
    Entry::of::<Embedding>(),
    Entry::of::<PositionEmbedding>(),
    Entry::of::<SinusoidalEmbedding>(),
    Entry::of::<SinusoidalPositions>(),
    Entry::of::<ClassToken>(),
    Entry::of::<Constant>(),
    Entry::of::<Parameter>(),
    Entry::of::<ArgMax>(),
];
