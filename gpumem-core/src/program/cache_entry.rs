//! Cache entries: tensors that a decoding network keeps between calls.

use super::{Operation, Program, Slot, TensorId};
use crate::number::Role;
use crate::shape::Shape;
use alloc::vec::Vec;

/// A cache entry of an operation, for each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheEntry {
    /// Its name, which follows the layer's name.
    pub name: &'static str,
    /// Its dimensions.
    pub shape: Shape,
    /// The role of its elements, which decides their number format.
    pub role: Role,
    /// True if it has a row for each time step, as keys and values have. False for a state that sums up all time steps so far: its size is
    /// fixed, and it cannot go back to an earlier time step.
    pub grows: bool,
}

impl CacheEntry {
    /// Returns an entry with a row for each time step.
    pub fn rows(name: &'static str, [steps, row]: [u64; 2]) -> CacheEntry {
        CacheEntry { name, shape: Shape::new(&[steps, row]), role: Role::Activation, grows: true }
    }

    /// Returns an entry that sums up all time steps so far.
    pub fn state(name: &'static str, dims: &[u64], role: Role) -> CacheEntry {
        CacheEntry { name, shape: Shape::new(dims), role, grows: false }
    }
}

impl Operation {
    /// Returns the tensors of its cache entries.
    pub fn caches(&self) -> Vec<(TensorId, CacheEntry)> {
        let all = self.forward().map(|op| op.caches()).unwrap_or_default();
        (0..).zip(all).filter_map(|(index, kept)| Some((self.read(Slot::Cache(index))?, kept))).collect()
    }
}

impl Program {
    /// Returns the tensors of cache entries that cannot go back to an earlier time step.
    pub fn states(&self) -> Vec<TensorId> {
        let caches = self.operations.iter().flat_map(Operation::caches);
        caches.filter(|(_, kept)| !kept.grows).map(|(tensor, _)| tensor).collect()
    }
}
