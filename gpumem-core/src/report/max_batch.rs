//! The largest batch that fits a card.

use crate::memory::budget::{Budget, PlanError, budget_at};
use crate::memory::levels::ArenaSize;
use crate::memory::tables::Tables;
use crate::number::Precision;
use alloc::collections::BTreeMap;

/// The sizes of the arenas of one step, by batch.
pub type ByBatch = BTreeMap<u64, Result<ArenaSize, PlanError>>;

/// The budgets of one step by batch. Each is planned at most once.
#[derive(Debug)]
pub struct Arenas<'a> {
    tables: Tables<'a>,
    precision: Precision,
    /// The sizes that were asked for.
    pub sizes: ByBatch,
}

impl<'a> Arenas<'a> {
    /// Returns the budgets of a step at this precision; none is planned yet.
    pub fn new(tables: Tables<'a>, precision: Precision) -> Arenas<'a> {
        Arenas { tables, precision, sizes: ByBatch::new() }
    }

    /// Returns the budget for `batch` samples, with a reserve of 0.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn budget(&mut self, batch: u64) -> Result<Budget, PlanError> {
        let Arenas { tables, precision, .. } = self;
        let size = self.sizes.entry(batch).or_insert_with(|| ArenaSize::of(tables, batch, *precision));
        size.as_mut().map_err(|error| *error)?.budget(|| budget_at(tables, batch, *precision))
    }

    /// True if the arena that is planned for `batch` samples has at most `room` bytes.
    pub fn fits(&mut self, batch: u64, room: u64) -> bool {
        let Arenas { tables, precision, .. } = self;
        let size = self.sizes.entry(batch).or_insert_with(|| ArenaSize::of(tables, batch, *precision));
        size.as_mut().is_ok_and(|size| size.fits(room, || budget_at(tables, batch, *precision)))
    }

    /// Returns the largest batch whose arena has at most `room` bytes; 0 if not even one sample fits. The search doubles the batch, then
    /// halves the interval. It plans the batches whose bounds do not tell if they fit.
    pub fn largest(&mut self, room: u64) -> u64 {
        if !self.fits(1, room) {
            return 0;
        }
        let mut low = 1;
        let mut high = 2;
        while self.fits(high, room) {
            low = high;
            high *= 2;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.fits(middle, room) { low = middle } else { high = middle }
        }
        low
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
