//! The choice among several programs of one training step, ordered from the least recomputation to the most.
//!
//! The macro finds them, cheapest first. Which one runs is the answer of [`choose_level`]: in the macro and the command if batch and cards are
//! known there, and in const evaluation otherwise. That plans one level after the other until one fits. Those after it are not planned at all.

use super::budget::{Budget, Line, Plan, PlanError, bounds_at, fitting_plan, plan_within, skipped_plan};
use super::refusal::limit;
use super::tables::Tables;
use super::target_cards::TargetCards;
use crate::message::Message;
use crate::number::Precision;
use crate::train::Checkpoint;

/// The recompute level that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Its number: 0 is the first one. That one recomputes only what the user marked by hand and, if there is no other level, outputs of
    /// normalisations.
    pub number: u64,
    /// The number of levels.
    pub count: u64,
    /// Bytes of activations at level 0; 0 if that is the only one.
    pub activations_without: u64,
}

impl Level {
    /// The level of a program without any other.
    pub const ONLY: Level = Level { number: 0, count: 1, activations_without: 0 };
}

/// Returns the plan of level 0. If only cards decide, one that does not fit them need not be packed.
pub const fn first<const N: usize>(
    tables: &Tables<'_>,
    batch: u64,
    precision: Precision,
    checkpoint: Checkpoint,
    cards: &TargetCards<'_>,
) -> Plan<N> {
    let most = if matches!(checkpoint, Checkpoint::Auto) { cards.room() } else { u64::MAX };
    plan_within(tables, batch, precision, most)
}

/// Returns the arena bytes that a level may use, given the plan of level 0.
pub const fn available<const N: usize>(first: &Plan<N>, checkpoint: Checkpoint, cards: &TargetCards<'_>) -> u64 {
    match checkpoint {
        Checkpoint::Auto | Checkpoint::Budget(_) => available_within(checkpoint, &first.budget, cards.room()),
        Checkpoint::Norms | Checkpoint::None | Checkpoint::Cheap => u64::MAX,
    }
}

/// Returns the arena bytes that a level may use: `room`, or less if `checkpoint: Budget(share)` asks for less.
pub const fn available_within(checkpoint: Checkpoint, first: &Budget, room: u64) -> u64 {
    match budget_room(checkpoint, first) {
        Some(share) if share < room => share,
        _ => room,
    }
}

/// Returns the arena bytes that `checkpoint: Budget(share)` asks for, given the budget of level 0. `None` for other values.
pub const fn budget_room(checkpoint: Checkpoint, first: &Budget) -> Option<u64> {
    match checkpoint {
        Checkpoint::Budget(share) => {
            let activations = first.get(Line::Activations);
            Some(first.get(Line::Arena) - activations + (activations as f64 * share) as u64)
        }
        Checkpoint::Norms | Checkpoint::None | Checkpoint::Cheap | Checkpoint::Auto => None,
    }
}

/// The bytes of a level without a packing: they fit nowhere.
pub const NOT_PACKED: u64 = u64::MAX;

/// Returns the index of the level that runs: the first one that fits into `available` bytes, or the last one if none does.
///
/// `peaks` are the bytes that differ between levels: those of a packing or, before there is one, a bound that no packing is below. `fixed` are the
/// bytes that all levels need besides. After a packing that is larger than its bound, the choice is made again.
pub const fn choose_level(peaks: &[u64], fixed: u64, available: u64) -> usize {
    let mut level = 0;
    while level + 1 < peaks.len() && !fits(peaks[level], fixed, available) {
        level += 1;
    }
    level
}

/// True if a level fits into `available` bytes.
pub const fn fits(peak: u64, fixed: u64, available: u64) -> bool {
    peak != NOT_PACKED && fixed.saturating_add(peak) <= available
}

/// Returns the bytes of a plan's arena, or [`NOT_PACKED`] if it has no packing.
pub const fn arena<const N: usize>(plan: &Plan<N>) -> u64 {
    if plan.error.is_none() && plan.is_packed { plan.arena() } else { NOT_PACKED }
}

/// Returns the plan of the level after those with these arenas, or an empty plan if one of them fits. The last level is packed even if it does
/// not fit.
pub const fn planned<const N: usize>(
    tables: &Tables<'_>,
    batch: u64,
    precision: Precision,
    (before, is_last): (&[u64], bool),
    available: u64,
    cards: &TargetCards<'_>,
) -> Plan<N> {
    if fits(before[choose_level(before, 0, available)], 0, available) {
        return skipped_plan(batch, precision);
    }
    let plan = fitting_plan(tables, batch, precision, available);
    if is_last && !fits(arena(&plan), 0, available) {
        return plan_within(tables, batch, precision, limit(N, cards));
    }
    plan
}

/// Fails to compile if even the last level takes more than `Budget` gives activations.
#[track_caller]
pub const fn check_budget<const N: usize>(
    name: &str,
    checkpoint: Checkpoint,
    without: u64,
    last: &Plan<N>,
    cards: &TargetCards<'_>,
) {
    let Checkpoint::Budget(share) = checkpoint else { return };
    if cards.environment.is_unchecked() || last.error.is_some() {
        return;
    }
    let (least, given) = (last.budget.get(Line::Activations), (without as f64 * share) as u64);
    if least <= given {
        // A plan that is larger than the cards is refused elsewhere.
        return;
    }
    let mut text = Message::<512>::new();
    text.text("network `")
        .text(name)
        .text("` needs ")
        .bytes(least)
        .text(" for activations with all recomputation that helps, ");
    text.number((100 * least as u128).div_ceil(if without > 0 { without as u128 } else { 1 }) as u64);
    text.text(" % of the ").bytes(without).text(" without it, and `Budget(..)` gives it ");
    text.bytes(given);
    text.text(": give it a larger share");
    panic!("{}", text.as_str())
}

/// The size of the arena of one step at one batch, as exactly as a question needs it. A bound or a quick packing usually tells if it fits.
#[derive(Clone, Copy, Debug)]
pub struct ArenaSize {
    /// Bytes that no packing goes below.
    at_least: u64,
    /// Bytes of a quick packing, which the best one is not above.
    at_most: u64,
    /// The budget of the best packing. `None` before a question needed it.
    budget: Option<Budget>,
}

impl ArenaSize {
    /// Returns the size of an arena at a batch between two bounds.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn of(tables: &Tables<'_>, batch: u64, precision: Precision) -> Result<ArenaSize, PlanError> {
        let [at_least, at_most] = bounds_at(tables, batch, precision)?;
        Ok(ArenaSize { at_least, at_most, budget: None })
    }

    /// Returns the budget. `plan` is called if it is not known yet.
    ///
    /// # Errors
    /// That of `plan`.
    pub fn budget(&mut self, plan: impl FnOnce() -> Result<Budget, PlanError>) -> Result<Budget, PlanError> {
        match self.budget {
            Some(budget) => Ok(budget),
            None => Ok(*self.budget.insert(plan()?)),
        }
    }

    /// True if the arena has at most `room` bytes. `plan` is called if the bounds do not tell.
    pub fn fits(&mut self, room: u64, plan: impl FnOnce() -> Result<Budget, PlanError>) -> bool {
        match self.budget {
            Some(budget) => budget[Line::Arena] <= room,
            None if self.at_least > room => false,
            None if self.at_most <= room => true,
            None => self.budget(plan).is_ok_and(|budget| budget[Line::Arena] <= room),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Const evaluation and lowering get one answer.
    #[test]
    fn the_first_level_that_fits_runs_or_the_last() {
        const SECOND: usize = choose_level(&[9, 7, 6], 2, 9);
        assert_eq!(SECOND, 1);
        for (available, level) in [(12, 0), (11, 0), (10, 1), (8, 2), (7, 2), (0, 2)] {
            assert_eq!(choose_level(&[9, 7, 6], 2, available), level, "{available}");
        }
        // Larger packings of cheap levels do not matter after them, smaller ones of dear levels do not come first.
        assert_eq!(choose_level(&[5, 20, 4], 0, 5), 0);
        assert!(fits(7, 2, 9) && !fits(7, 3, 9));
    }

    #[test]
    fn what_is_not_packed_fits_nowhere() {
        assert_eq!(choose_level(&[NOT_PACKED, 5], 0, u64::MAX), 1);
        assert!(!fits(NOT_PACKED, 0, u64::MAX) && fits(NOT_PACKED - 1, 2, u64::MAX));
    }
}
