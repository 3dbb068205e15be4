//! Ranks: sessions that share training steps, and the exchanges between them.

pub(crate) mod local;
#[cfg(feature = "mpi")]
pub(crate) mod mpi;

use crate::DEVICE;
use gpumem_core::error::Error;
use gpumem_core::run::agreement;
use gpumem_core::run::device::Fact;
pub(crate) use gpumem_core::run::ranks::waited;
use gpumem_core::run::ranks::{TIMEOUT, timeout as timeout_of};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// The reason of a rank whose network was dropped.
pub(crate) const UNLOADED: &str = "has stopped: its network is no longer loaded";

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

    /// Returns the shards of all ranks one after the other in `all`. All bits are kept.
    fn gather(&self, own: &[f32], all: &mut [f32]) -> Result<(), Error>;

    /// Replaces numbers by their mean over all ranks. The mean of equal numbers is that number.
    fn mean(&self, numbers: &mut [f32]) -> Result<(), Error>;

    /// Fails if a rank refuses its batch. `refuses` is true for one that does.
    fn agree(&self, refuses: bool) -> Result<(), Error>;

    /// Returns the first failure of an exchange of this rank, after which no other takes place.
    fn failure(&self) -> Option<Error>;

    /// Tells the other ranks that this one takes part in no further exchange, and the reason.
    fn leave(&self, what: &str);
}

/// Returns the shard of a rank among those of all.
pub(crate) fn own_of<T>(all: &[T], rank: u64, count: u64) -> &[T] {
    let length = all.len() / count.max(1) as usize;
    &all[rank as usize * length..][..length]
}

/// The other ranks of an exchange, and true if exchanges take place late.
pub(crate) type Group = (Arc<dyn Peers>, bool);

/// Compares the facts of a network with those of all ranks, which all call it before they exchange anything else.
///
/// # Errors
/// [`Error::Ranks`] on all ranks, if one of them has others or does not come.
pub(crate) fn compare(peers: &dyn Peers, facts: &[Fact]) -> Result<(), Error> {
    agreement::agree(facts, |own| {
        let own: Vec<f32> = own.iter().copied().map(f32::from_bits).collect();
        let mut all = vec![0.0; own.len() * peers.count() as usize];
        peers.gather(&own, &mut all)?;
        Ok(all.into_iter().map(f32::to_bits).collect())
    })
}

/// Adds up the numbers of all ranks, in the order of ranks.
fn add_up(all: &[&[f32]], to: &mut [f32]) {
    let (first, others) = all.split_first().expect("there is a rank");
    to.copy_from_slice(first);
    for other in others {
        to.iter_mut().zip(*other).for_each(|(sum, number)| *sum += number);
    }
}

/// Returns the mean of the numbers of all ranks.
fn mean_of(all: &[&[f32]], to: &mut [f32]) {
    for (at, to) in to.iter_mut().enumerate() {
        // A sum of so many equal f32 numbers is exact in f64.
        let sum: f64 = all.iter().map(|numbers| f64::from(numbers[at])).sum();
        *to = (sum / all.len() as f64) as f32;
    }
}

/// Returns how long a rank waits for the others.
///
/// # Errors
/// A variable that is no number of seconds.
pub(crate) fn timeout() -> Result<Duration, Error> {
    timeout_of(DEVICE, std::env::var(TIMEOUT).ok().as_deref())
}

/// Returns the error of a rank that refused its batch.
fn refused(rank: u64) -> Error {
    Error::Ranks { rank, what: "refused its batch, so that no rank made the step".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_that_a_rank_waits() {
        assert_eq!(timeout_of(DEVICE, None), Ok(Duration::from_secs(600)));
        assert_eq!(timeout_of(DEVICE, Some("")), Ok(Duration::from_secs(600)));
        assert_eq!(timeout_of(DEVICE, Some(" 5 ")), Ok(Duration::from_secs(5)));
        for wrong in ["0", "-1", "1.5", "soon"] {
            let error = timeout_of(DEVICE, Some(wrong)).unwrap_err().to_string();
            let expected = format!(
                "the CPU: `GPUMEM_RANKS_TIMEOUT={wrong}` is no number of seconds; write a whole one from 1 on, such as 600"
            );
            assert_eq!(error, expected);
        }
    }
}
