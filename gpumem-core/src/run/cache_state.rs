//! The state of a sequence cache.

use crate::program::Program;

/// The state of the cache of a loaded network.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheState {
    /// Time steps that are in the cache.
    pub(super) steps: u64,
    /// The most time steps that the cache can hold; 0 without a cache.
    pub(super) most: u64,
    /// Time steps in one pass of the forward program.
    pub(super) chunk: u64,
    /// True if a cache entry is a state of all steps so far. Such a state cannot go back to an earlier step.
    pub(super) has_states: bool,
}

impl CacheState {
    /// Returns an empty cache of a forward pass that takes `chunk` time steps. `most` is 0 without a cache.
    pub(super) fn new([most, chunk]: [u64; 2], infer: &Program) -> CacheState {
        CacheState { steps: 0, most, chunk, has_states: !infer.states().is_empty() }
    }
}
