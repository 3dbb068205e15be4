//! A planned program with the offset of each tensor, for tools that show them.

use super::planned::{NotPlanned, Planned};
use crate::error::Error;
use crate::lower::LowerError;
use crate::memory::Compiled;
use crate::memory::budget::{Budget, pack_at};
use crate::memory::levels::Level;
use crate::memory::place::{Placed, place};
use alloc::string::ToString as _;

impl Planned {
    /// Returns the program for the cards of the network with an offset for each tensor, and its budget.
    ///
    /// The budget has a reserve of 0.
    ///
    /// The packing is that of [`Planned::budget`] for these cards, so both budgets are equal.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn placed(&self) -> Result<(Placed, Budget), NotPlanned> {
        let limited = self.limited_tables();
        let packed = pack_at(&limited, self.batch, self.precision);
        let (budget, offsets) = packed.map_err(|error| NotPlanned::Plan(self.batch, error))?;
        let compiled = Compiled {
            program: &self.program.encode(),
            tables: &limited,
            offsets: &offsets,
            budget,
            batch: self.batch,
            precision: self.precision,
            level: Level::ONLY,
        };
        let refused = |error: Error| LowerError { row: None, message: error.to_string() };
        let placed = place(&compiled).map_err(refused)?;
        Ok((placed, budget))
    }
}
