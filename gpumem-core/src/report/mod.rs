//! Reports of the memory that a network needs, as a table for people and as JSON for programs.

#[cfg(feature = "lower")]
mod advice;
mod json;
mod max_batch;
#[cfg(feature = "lower")]
mod placed;
#[cfg(feature = "lower")]
mod planned;
mod recomputation;
pub mod roofline;
mod table;
pub mod text;

#[cfg(feature = "lower")]
pub use advice::{Advice, Adviser, Cost, Extent};
pub use json::json;
pub use max_batch::Arenas;
#[cfg(feature = "lower")]
pub use planned::{Cheaper, Device, NotPlanned, Planned, Written};
pub use recomputation::Recomputation;
pub use roofline::roofline;
pub use table::{needs, split, table};

use crate::cards::Card;
use crate::network::{Network, kept_bytes};
use crate::program::Program;
use crate::train::Ranks;
use alloc::vec;
use alloc::vec::Vec;

/// Returns the samples of the program whose figures a report shows.
const fn batch<N: Network>() -> u64 {
    N::PROGRAM.batch
}

/// Returns the bytes that an arena may have on a card, with `headroom` left to other processes. Each of the ranks has such a card.
fn room(card: &Card, headroom: u64, ranks: Ranks) -> u64 {
    let beside = card.reserve().saturating_add(ranks.communication(Some(card)));
    card.usable().saturating_sub(beside).saturating_sub(headroom)
}

/// Returns the elements of all parameters.
fn parameters<N: Network>() -> u64 {
    N::LAYERS.iter().map(|layer| layer.parameters).sum()
}

/// Returns the multiply-accumulates of one sample's forward pass.
fn macs<N: Network>() -> u64 {
    N::LAYERS.iter().map(|layer| layer.macs).sum()
}

/// Returns the bytes that are saved in each layer for the backward pass.
fn kept<N: Network>() -> Vec<u64> {
    let Some(training) = N::TRAINING else { return vec![0; N::LAYERS.len()] };
    let bytes = |kept| kept_bytes(kept, training.samples(), training.precision);
    let of_layers = N::LAYERS.iter().map(|info| bytes(info.kept));
    // The layer table is that of recompute level 0.
    let leaner = if training.level.number > 0 { Program::decode(training.program) } else { None };
    leaner.map_or_else(|| of_layers.collect(), |program| program.kept_of_layers().into_iter().map(bytes).collect())
}
