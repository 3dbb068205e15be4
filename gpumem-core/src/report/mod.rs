//! Reports: what a network needs, as a table for people and as JSON for programs.

mod json;
mod max_batch;
mod recomputation;
pub mod roofline;
mod table;
pub mod text;

pub use json::json;
pub use max_batch::Arenas;
pub use recomputation::Recomputation;
pub use roofline::roofline;
pub use table::{needs, table};

use crate::cards::Card;
use crate::network::Network;

/// Samples of the program whose figures a report shows.
const fn batch<N: Network>() -> u64 {
    N::PROGRAM.batch
}

/// Bytes that an arena may have on a card, beside what is left to others.
fn room(card: &Card, headroom: u64) -> u64 {
    card.usable().saturating_sub(card.reserve()).saturating_sub(headroom)
}

/// Elements of all parameters.
fn parameters<N: Network>() -> u64 {
    N::LAYERS.iter().map(|layer| layer.parameters).sum()
}

/// Multiply-accumulates of one sample's forward pass.
fn macs<N: Network>() -> u64 {
    N::LAYERS.iter().map(|layer| layer.macs).sum()
}

/// Bytes that the backward pass keeps of a layer.
fn kept<N: Network>(index: usize) -> u64 {
    let info = &N::LAYERS[index];
    if N::TRAINING.is_some() { info.kept_bytes(batch::<N>(), N::PROGRAM.precision) } else { 0 }
}
