//! Ranks: sessions that share training steps, and the exchanges between them.

pub(crate) mod local;

use gpumem_core::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

/// The other ranks of a session, as one of them sees them.
///
/// All ranks call the same functions in the same order. Sums are added up in the order of ranks, so that all of them get equal bits.
pub(crate) trait Peers: Debug + Send + Sync {
    /// Returns the number of this rank, from 0.
    fn rank(&self) -> u64;

    /// Returns the number of ranks.
    fn count(&self) -> u64;

    /// Adds up the numbers of all ranks.
    fn sum(&self, numbers: &mut [f32]) -> Result<(), Error>;

    /// Adds up the numbers of all ranks, and keeps those of this rank's shard. `all` has as many shards as there are ranks.
    fn sum_shard(&self, all: &[f32], own: &mut [f32]) -> Result<(), Error>;

    /// Returns the shards of all ranks one after the other in `all`.
    fn gather(&self, own: &[f32], all: &mut [f32]) -> Result<(), Error>;

    /// Replaces numbers by their mean over all ranks. The mean of equal numbers is that number.
    fn mean(&self, numbers: &mut [f32]) -> Result<(), Error>;

    /// Fails if a rank refuses its batch. `refuses` is true for one that does.
    fn agree(&self, refuses: bool) -> Result<(), Error>;

    /// Returns the first failure of an exchange of this rank, after which no other takes place.
    fn failure(&self) -> Option<Error>;

    /// Tells the other ranks that this one takes part in no further exchange.
    fn leave(&self);
}

/// Returns the shard of a rank among those of all.
pub(crate) fn own_of<T>(all: &[T], rank: u64, count: u64) -> &[T] {
    let length = all.len() / count.max(1) as usize;
    &all[rank as usize * length..][..length]
}

/// The other ranks of an exchange, and true if exchanges take place late.
pub(crate) type Group = (Arc<dyn Peers>, bool);
