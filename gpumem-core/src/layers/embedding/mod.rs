//! `Embedding(50257, 768)`: tables of rows.

mod class_token;
#[expect(clippy::module_inception, reason = "a layer has a file of its name, in the folder of its family")]
mod embedding;
mod position_embedding;
mod sinusoidal;

pub use class_token::ClassToken;
pub use embedding::Embedding;
pub use position_embedding::PositionEmbedding;
pub use sinusoidal::{SinusoidalEmbedding, SinusoidalPositions};

use super::Entry;

/// The layers of the family.
pub(super) const LAYERS: &[Entry] = &[
    Entry::of::<Embedding>(),
    Entry::of::<PositionEmbedding>(),
    Entry::of::<SinusoidalEmbedding>(),
    Entry::of::<SinusoidalPositions>(),
    Entry::of::<ClassToken>(),
];
