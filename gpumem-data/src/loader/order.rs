//! The order of an epoch: it assigns samples to batches.

use crate::draw::Draw;
use crate::error::{Error, Result};

/// The share of a data set that one of several processes loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub rank: usize,
    pub of: usize,
}

/// The sizes that divide an epoch into batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Division {
    /// Samples of the whole data set.
    pub samples: usize,
    /// Samples of a batch.
    pub batch: usize,
    pub shard: Shard,
    /// True if an incomplete batch is dropped.
    pub drops_last: bool,
}

impl Division {
    /// Returns the samples of one batch of each shard together.
    pub fn global_batch(&self) -> usize {
        self.shard.of.saturating_mul(self.batch)
    }

    /// Returns the samples that all shards have together in their batches from sample `first` on.
    pub fn global_len(&self, first: usize) -> usize {
        self.samples.saturating_sub(first).min(self.global_batch())
    }

    /// Returns the batches after the first `given` samples of all shards. It is equal on all ranks.
    pub fn batches(&self, given: usize) -> usize {
        let left = self.samples.saturating_sub(given);
        if self.drops_last { left / self.global_batch() } else { left.div_ceil(self.global_batch()) }
    }

    /// True if some batch is incomplete on some rank.
    pub fn is_padded(&self) -> bool {
        !self.drops_last && !self.samples.is_multiple_of(self.global_batch())
    }
}

/// The order in which an epoch visits the samples.
#[derive(Debug, Default)]
pub(super) struct EpochOrder {
    /// The shuffled indices. Empty if the order is that of the data set.
    shuffled: Vec<usize>,
    /// The seed, epoch and number of samples of `shuffled`. `None` before the first shuffle.
    made_for: Option<(u64, u64, usize)>,
}

impl EpochOrder {
    /// Shuffles for an epoch, after Fisher and Yates. Allocates in the first epoch only.
    ///
    /// # Errors
    /// A number of samples whose order does not fit into memory.
    pub fn shuffle(&mut self, seed: u64, epoch: u64, samples: usize) -> Result<()> {
        if self.made_for == Some((seed, epoch, samples)) {
            return Ok(());
        }
        self.shuffled.clear();
        self.made_for = None;
        self.shuffled.try_reserve_exact(samples).map_err(|_| {
            Error::setting(format!(
                "there is no memory for the order of {samples} samples, 8 bytes each; leave `shuffle` out, or correct `len` of the data set"
            ))
        })?;
        self.shuffled.extend(0..samples);
        let mut draw = Draw::shuffle(seed, epoch);
        for end in (1..samples).rev() {
            self.shuffled.swap(end, draw.below(end + 1));
        }
        self.made_for = Some((seed, epoch, samples));
        Ok(())
    }

    /// Replaces `indices` by the data set's indices of this shard's batch, among those of all shards from sample `first` on.
    ///
    /// Each shard has samples that follow each other, so that ranks have the samples of as many micro-batches.
    pub fn indices(&self, division: &Division, first: usize, indices: &mut Vec<usize>) {
        let first = first.saturating_add(division.shard.rank.saturating_mul(division.batch));
        let end = division.samples.min(first.saturating_add(division.batch));
        let index = |place: usize| self.shuffled.get(place).copied().unwrap_or(place);
        indices.clear();
        indices.extend((first..end).map(index));
    }
}

#[cfg(test)]
mod tests {
    use super::{Division, EpochOrder, Shard};

    fn division(samples: usize, batch: usize, (rank, of): (usize, usize), drops_last: bool) -> Division {
        Division { samples, batch, shard: Shard { rank, of }, drops_last }
    }

    #[test]
    fn shards_partition_the_set_and_have_equally_many_batches() {
        for (samples, batch, of) in [(23, 4, 3), (5, 1, 2), (24, 4, 3), (2, 8, 3)] {
            for drops_last in [false, true] {
                let mut order = EpochOrder::default();
                order.shuffle(3, 1, samples).unwrap();
                let mut seen = Vec::new();
                for rank in 0..of {
                    let division = division(samples, batch, (rank, of), drops_last);
                    assert_eq!(division.batches(0), self::division(samples, batch, (0, of), drops_last).batches(0));
                    let mut indices = Vec::new();
                    for number in 0..division.batches(0) {
                        order.indices(&division, number * batch * of, &mut indices);
                        assert!(!drops_last || indices.len() == batch);
                        seen.extend_from_slice(&indices);
                    }
                }
                seen.sort_unstable();
                let is_distinct = seen.windows(2).all(|pair| pair[0] < pair[1]);
                assert!(is_distinct && (drops_last || seen.len() == samples), "{samples} {batch} {of} {seen:?}");
            }
        }
    }

    #[test]
    fn orders_differ_by_seed_and_epoch() {
        let order = |seed, epoch| {
            let mut order = EpochOrder::default();
            order.shuffle(seed, epoch, 100).unwrap();
            order.shuffled
        };
        assert_eq!(order(1, 0), order(1, 0));
        assert_ne!(order(1, 0), order(1, 1));
        assert_ne!(order(1, 0), order(2, 0));
    }
}
