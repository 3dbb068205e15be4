//! The largest batch of a training step that takes what fits, where cards are known while the network is lowered.
//!
//! Input: a blueprint, a setting whose batch is a first guess, and the bytes that an arena may have. Output: a batch, and the step for it as
//! [`Blueprint::fitted`] makes it. Cost: two searches for recomputation, and a packing or two.

use super::fitted::budget;
use super::{Blueprint, Fitted, LowerError, Setting, tables};
use crate::memory::budget::{Line, budget_at, lower_bound_at};
use crate::memory::levels::room_within;
use crate::memory::tables::Tables;
use crate::program::Program;

/// The most batches that are planned for one answer.
const MOST_PLANS: usize = 4;

/// More samples than any card has room for.
const MOST_SAMPLES: u64 = 1 << 32;

/// A step at the largest batch that was found.
#[derive(Clone, Debug)]
pub struct LargestFitted {
    /// Samples in a step.
    pub batch: u64,
    /// The step for this batch.
    pub fitted: Fitted,
}

impl Blueprint {
    /// Returns the largest batch with which the step that recomputes most fits into `room` bytes, and the step for it: with as little
    /// recomputation as was found, or as much as `Budget` asks for. The levels are those of a setting, whose batch is a first guess.
    ///
    /// `None` for a network that is not trained, or if not even one sample fits.
    ///
    /// # Errors
    /// See [`lower`](super::lower).
    pub fn largest_fitted(&self, setting: &Setting, room: u64) -> Result<Option<LargestFitted>, LowerError> {
        let Some(leanest) = self.leanest(setting)? else { return Ok(None) };
        let parts = self.training.as_ref().map_or(1, |steps| steps.descent.micro_batches).max(1);
        // Until the process ends, as elsewhere.
        let tables = tables(&leanest).leak().with_workspaces(setting.workspaces).with_micro_batches(1);
        let mut batch = largest_bounded(&tables, setting, room);
        // Levels are those of another batch now: they need a little more or less. Packings reach the bound as a rule.
        for _ in 0..MOST_PLANS {
            if batch == 0 {
                return Ok(None);
            }
            let at = Setting { batch: batch.saturating_mul(parts), ..*setting };
            let Some(fitted) = self.fitted(&at, |budget| room_within(self.checkpoint(), budget, room))? else {
                return Ok(None);
            };
            let needs = match &fitted.leaner {
                Some(leaner) => Some(leaner.budget[Line::Arena]),
                None => budget(&fitted.plain, &at).map(|budget| budget[Line::Arena]),
            };
            match needs {
                Some(arena) if arena <= room => return Ok(Some(LargestFitted { batch: at.batch, fitted })),
                Some(arena) => batch = packed_below(&tables, setting, smaller(batch, arena, room), room),
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Returns the step that recomputes most at a setting. `None` for a network that is not trained.
    fn leanest(&self, setting: &Setting) -> Result<Option<Program>, LowerError> {
        let Some(plain) = self.training_for(setting)? else { return Ok(None) };
        let again = self.renormalised(&plain, setting)?;
        let found = self.leaner(again.as_ref().unwrap_or(&plain), setting)?;
        let last = match found.levels.split_first() {
            Some((_, [.., last])) => self.training_in_order(setting.precision, &last.order)?,
            _ => None,
        };
        Ok(Some(last.or(again).unwrap_or(plain)))
    }
}

/// Returns the samples at once of the largest batch whose lower bound fits into `room` bytes. 0 if there is none.
fn largest_bounded(tables: &Tables, setting: &Setting, room: u64) -> u64 {
    let may_fit = |batch: u64| lower_bound_at(tables, batch, setting.precision).is_ok_and(|bytes| bytes <= room);
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

/// Returns a batch whose plan fits into `room` bytes: this one or one below it. 0 if none was found.
fn packed_below(tables: &Tables, setting: &Setting, mut batch: u64, room: u64) -> u64 {
    for _ in 0..MOST_PLANS {
        match budget_at(tables, batch, setting.precision) {
            Ok(budget) if budget[Line::Arena] <= room => return batch,
            Ok(budget) => batch = smaller(batch, budget[Line::Arena], room),
            Err(_) => return 0,
        }
    }
    0
}

/// Returns the share of a batch that fits where its arena is too large by a share: at least one sample less.
fn smaller(batch: u64, arena: u64, room: u64) -> u64 {
    let share = u128::from(batch) * u128::from(room) / u128::from(arena.max(1));
    u64::try_from(share).unwrap_or(u64::MAX).min(batch - 1)
}
