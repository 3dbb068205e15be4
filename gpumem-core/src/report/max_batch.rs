//! The largest batch that fits a card.

use crate::memory::budget::{Budget, Line, PlanError, budget_at, lower_bound_at};
use crate::memory::levels::ArenaSize;
use crate::memory::tables::Tables;
use crate::number::Precision;
use alloc::collections::BTreeMap;

/// The arenas of one step by batch, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct ByBatch {
    /// The sizes that were asked for.
    sizes: BTreeMap<u64, Result<ArenaSize, PlanError>>,
    /// Bytes that no packing goes below. The largest number if they cannot be counted.
    bounds: BTreeMap<u64, u64>,
}

/// The budgets of one step by batch. Each is planned at most once.
#[derive(Debug)]
pub struct Arenas<'a> {
    tables: Tables<'a>,
    precision: Precision,
    /// The answers to earlier questions.
    pub known: ByBatch,
}

impl<'a> Arenas<'a> {
    /// Returns the budgets of a step at this precision; none is planned yet.
    pub fn new(tables: Tables<'a>, precision: Precision) -> Arenas<'a> {
        Arenas { tables, precision, known: ByBatch::default() }
    }

    /// Returns the budget for `batch` samples, with a reserve of 0.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn budget(&mut self, batch: u64) -> Result<Budget, PlanError> {
        let Arenas { tables, precision, .. } = self;
        let size = self.known.sizes.entry(batch).or_insert_with(|| ArenaSize::of(tables, batch, *precision));
        size.as_mut().map_err(|error| *error)?.budget(|| budget_at(tables, batch, *precision))
    }

    /// True if the arena that is planned for `batch` samples has at most `room` bytes.
    pub fn fits(&mut self, batch: u64, room: u64) -> bool {
        let Arenas { tables, precision, .. } = self;
        let size = self.known.sizes.entry(batch).or_insert_with(|| ArenaSize::of(tables, batch, *precision));
        size.as_mut().is_ok_and(|size| size.fits(room, || budget_at(tables, batch, *precision)))
    }

    /// Returns the largest batch whose arena has at most `room` bytes; 0 if not even one sample fits.
    ///
    /// Bounds tell the largest batch that may fit. Usually it is packed to its bound; if not, smaller ones are planned.
    pub fn largest(&mut self, room: u64) -> u64 {
        let mut low = self.largest_bounded(room);
        let mut high = low + 1;
        while low > 0 && !self.fits(low, room) {
            (low, high) = (self.smaller(low, room), low);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.fits(middle, room) { low = middle } else { high = middle }
        }
        low
    }

    /// Returns a batch below one whose arena is larger than `room` bytes: as many samples less as these bytes are.
    fn smaller(&mut self, batch: u64, room: u64) -> u64 {
        let sample = self.bound(batch).saturating_sub(self.bound(batch - 1)).max(1);
        let arena = self.budget(batch).map_or(u64::MAX, |budget| budget[Line::Arena]);
        batch.saturating_sub(arena.saturating_sub(room).div_ceil(sample).max(1))
    }

    fn bound(&mut self, batch: u64) -> u64 {
        let Arenas { tables, precision, .. } = self;
        let count = || lower_bound_at(tables, batch, *precision).unwrap_or(u64::MAX);
        *self.known.bounds.entry(batch).or_insert_with(count)
    }

    /// Returns the largest batch whose bound is at most `room` bytes.
    ///
    /// Bytes are nearly linear in the batch: a straight line between two known batches usually hits. Halving keeps the number of steps small
    /// where it does not.
    fn largest_bounded(&mut self, room: u64) -> u64 {
        if self.bound(1) > room {
            return 0;
        }
        let mut high = 2;
        while self.bound(high) <= room {
            high = high.saturating_mul(2);
        }
        let (mut low, mut step) = (1, 0);
        loop {
            // Earlier questions may have come nearer.
            let known = &self.known.bounds;
            let below = known.range(low..high).rev().find(|&(_, &bytes)| bytes <= room);
            let (at, low_bytes) = below.map_or((low, 0), |(&at, &bytes)| (at, bytes));
            low = at;
            let above = known.range(low + 1..=high).find(|&(_, &bytes)| bytes > room);
            let (at, high_bytes) = above.map_or((high, u64::MAX), |(&at, &bytes)| (at, bytes));
            high = at;
            if high - low <= 1 {
                return low;
            }
            let middle = low + (high - low) / 2;
            let guess = match step % 3 {
                2 => middle,
                1 => low + 1,
                _ if high_bytes == u64::MAX || high_bytes <= low_bytes => middle,
                _ => {
                    let share =
                        u128::from(room - low_bytes) * u128::from(high - low) / u128::from(high_bytes - low_bytes);
                    low + u64::try_from(share).unwrap_or(0)
                }
            };
            self.bound(guess.clamp(low + 1, high - 1));
            step += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::live_ranges::OwnedTransients;
    use crate::memory::tables::{Paths, Workspaces};
    use crate::train::Ranks;

    #[test]
    fn the_largest_batch_fits_and_the_next_does_not() {
        let transients = OwnedTransients::new([([0, 0, 1000, 0, 0, 1], false), ([4, 1, 0, 0, 1, 1], false)]);
        let tables = Tables {
            operations: 2,
            transients: transients.as_transients(),
            parameters: &[[1, 5000, 1, 1]],
            buffers: &[],
            batch: &[[0, 100]],
            caches: &[],
            moments: 0,
            holds_gradients: false,
            wide_sums: false,
            training: false,
            operation_tags: &[0; 8],
            transient_tags: &[0; 8],
            paths: Paths::NONE,
            workspaces: Workspaces::UNLIMITED,
            micro_batches: 1,
            parts: 1,
            ranks: Ranks::ALONE,
            averages: false,
            offloads: false,
            parked: &[],
            step: "",
        };
        let mut arenas = Arenas::new(tables, Precision::F32);
        for room in [30_000u64, 100_000, 12_345_678] {
            let batch = arenas.largest(room);
            assert!(arenas.fits(batch, room) && !arenas.fits(batch + 1, room), "{room}: {batch}");
        }
        assert_eq!(arenas.largest(20_000), 0, "the weights alone do not fit");
    }
}
