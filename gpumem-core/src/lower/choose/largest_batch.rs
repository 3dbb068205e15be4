//! The largest batch of a training step that fits, if cards are known while the network is lowered.
//!
//! Input: a blueprint, a setting, and the bytes available to an arena. Output: a batch, and the step for it as [`Blueprint::fitted`] makes it,
//! with levels of a batch nearby. Cost: one search for recomputation, or a few lowerings without, and one or two packings, which fit and need not be
//! the smallest.

use crate::lower::choose::candidates::Levels;
use crate::lower::choose::level::packed_within;
use crate::lower::{Blueprint, Fitted, LowerError, Sizes, tables};
use crate::memory::budget::{Budget, Line, lower_bound_at};
use crate::memory::levels::available_within;
use crate::program::Program;
use alloc::vec::Vec;

/// The most batches that are planned for one answer.
const MOST_PLANS: usize = 8;

/// The most programs between which the search for one batch goes on.
pub(crate) const MOST_PROGRAMS: usize = 8;

/// A number of samples that no card has memory for.
const MOST_SAMPLES: u64 = 1 << 32;

/// The bytes of the plain step, in arenas, at the batch where levels are searched. There, the leanest of them about fits into one arena.
const TIMES: u64 = 4;

/// The factor, as a fraction, of peaks that are estimated for another batch. They are then too low, so that no level is left out that fits.
const NEARLY: [u128; 2] = [63, 64];

/// A step at the largest batch that was found.
#[derive(Clone, Debug)]
pub struct LargestFitted {
    /// Samples in a step.
    pub batch: u64,
    /// The step for this batch.
    pub fitted: Fitted,
}

impl Blueprint {
    /// Returns the largest batch with which the step that recomputes most fits into `room` bytes, and the step for it. That step has as little
    /// recomputation as was found, or as much as `Budget` asks for. The plain step is lowered for the batch of the setting. A step in which memory
    /// decides nothing is lowered for the batch that is returned.
    ///
    /// `None` for a network that is not trained, or if not even one sample fits.
    ///
    /// # Errors
    /// See [`lower`](crate::lower::lower).
    pub fn largest_fitted(&self, setting: &Sizes, room: u64) -> Result<Option<LargestFitted>, LowerError> {
        if !self.decides() {
            return self.largest_plain(setting, room);
        }
        let Some(plain) = self.plain(setting)? else { return Ok(None) };
        let parts = self.training.as_ref().map_or(1, |steps| steps.descent.parts()).max(1);
        let of_samples = |samples: u64| Sizes { batch: samples.saturating_mul(parts), ..*setting };
        let near = largest_bounded(&plain, setting, room.saturating_mul(TIMES)).max(1);
        let near = of_samples(near);
        let mut levels = self.levels_beside(&plain, &near, self.searches())?;
        levels.leanest = levels.program(self, levels.all.len(), setting)?;
        let leanest = levels.leanest.clone().unwrap_or_else(|| plain.clone());
        levels.enough = room;
        let mut batch = largest_bounded(&leanest, setting, room);
        // Usually a packing is as small as its lower bound.
        for _ in 0..MOST_PLANS {
            if batch == 0 {
                return Ok(None);
            }
            let at = of_samples(batch);
            let available = |budget: &Budget| available_within(self.checkpoint(), budget, room);
            let levels = |_: &Program| Ok(levels.clone().scaled([near.peak(&leanest), at.peak(&leanest)]));
            let Some(fitted) = self.fitted_beside(plain.clone(), levels, &at, available)? else { return Ok(None) };
            let budget = fitted.leaner.as_ref().map_or(&fitted.budget, |leaner| &leaner.budget);
            let arena = budget[Line::Arena];
            if arena <= room {
                return Ok(Some(LargestFitted { batch: at.batch, fitted }));
            }
            batch = smaller(batch, arena, room);
        }
        Ok(None)
    }

    /// Returns the largest batch with which the plain step, lowered for that batch, fits into `room` bytes: see [`climb`].
    fn largest_plain(&self, setting: &Sizes, room: u64) -> Result<Option<LargestFitted>, LowerError> {
        let parts = self.training.as_ref().map_or(1, |steps| steps.descent.parts()).max(1);
        let of_samples = |samples: u64| Sizes { batch: samples.saturating_mul(parts), ..*setting };
        let Some(mut plain) = self.plain(setting)? else { return Ok(None) };
        // A step that cannot be lowered has no batch. The error comes with the step for the batch that is found.
        let bounded = |samples| match self.plain(&of_samples(samples)) {
            Ok(Some(next)) => largest_bounded(&next, setting, room),
            Ok(None) | Err(_) => 0,
        };
        let mut samples = climb(largest_bounded(&plain, setting, room), 1, bounded);
        for _ in 0..MOST_PLANS {
            if samples == 0 {
                return Ok(None);
            }
            let at = of_samples(samples);
            plain = self.plain(&at)?.unwrap_or(plain);
            let Some((budget, packed)) = packed_within(&plain, &at, 0) else { return Ok(None) };
            let arena = budget[Line::Arena];
            if arena <= room {
                let fitted = Fitted { plain, leaner: None, budget, packed: Vec::from([packed]) };
                return Ok(Some(LargestFitted { batch: at.batch, fitted }));
            }
            samples = smaller(samples, arena, room);
        }
        Ok(None)
    }
}

/// Returns a batch from `largest` on that is the largest of its program, and of the program for the next multiple of `parts` above it.
///
/// The backward pass of a step is ordered for its batch. Where weights are most of the memory, another order is best than where activations are. So
/// the program of one batch does not tell how much memory a much larger one takes. `largest_of` returns the largest batch with which the program
/// for a batch fits; the search goes on with the program above the batch that it has found.
pub(crate) fn climb(mut largest: u64, parts: u64, mut largest_of: impl FnMut(u64) -> u64) -> u64 {
    for _ in 0..MOST_PROGRAMS {
        let next = largest_of((largest + 1).next_multiple_of(parts));
        if next <= largest {
            break;
        }
        largest = next;
    }
    largest
}

impl Levels {
    /// Returns the levels with their peaks at another batch, scaled as the peak of one level is. They are a little too low, never too high.
    fn scaled(mut self, [here, there]: [u64; 2]) -> Levels {
        let [part, whole] = NEARLY;
        self.scale([u128::from(there) * part, u128::from(here.max(1)) * whole]);
        self
    }
}

/// Returns the most samples in memory at once whose lower bound fits into `room` bytes. 0 if not even one fits.
fn largest_bounded(program: &Program, setting: &Sizes, room: u64) -> u64 {
    let tables = tables(program);
    let at_once = tables.as_tables().with_workspaces(setting.workspaces).of_part();
    let may_fit = |batch: u64| lower_bound_at(&at_once, batch, setting.precision).is_ok_and(|bytes| bytes <= room);
    if !may_fit(1) {
        return 0;
    }
    let (mut low, mut high) = (1, 2);
    while high < MOST_SAMPLES && may_fit(high) {
        (low, high) = (high, 2 * high);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if may_fit(middle) { low = middle } else { high = middle }
    }
    low
}

/// Returns a smaller batch, scaled by the ratio of `room` to the arena that is too large. It has at least one sample less.
fn smaller(batch: u64, arena: u64, room: u64) -> u64 {
    let share = u128::from(batch) * u128::from(room) / u128::from(arena.max(1));
    u64::try_from(share).unwrap_or(u64::MAX).min(batch - 1)
}
