//! Sizes of arenas, as exactly as a question needs them.
//!
//! Most questions only compare an arena with a room. A bound from below or a quick packing usually answers them; the best packing is searched
//! for the others.

use crate::memory::budget::{Budget, Line, PlanError, bounds_at};
use crate::memory::tables::Tables;
use crate::number::Precision;

/// The size of the arena of one step at one batch.
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
