//! A planned program with the offset of each tensor, for tools that show them.

use super::planned::{Device, NotPlanned, Planned, room_within};
use crate::cards::Card;
use crate::error::Error;
use crate::lower::{LowerError, OwnedTables, tables};
use crate::memory::Compiled;
use crate::memory::budget::{Budget, pack_at};
use crate::memory::levels::Level;
use crate::memory::place::{Placed, place};
use crate::program::Program;
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
        self.placed_as(&self.program, &self.tables, &self.cards)
    }

    /// Returns the program that is planned for the target cards `aim`, or without any for the device: see [`Planned::within`].
    ///
    /// Unlike [`Planned::placed`], recomputes by choice as little as that takes.
    ///
    /// # Errors
    /// See [`NotPlanned`].
    pub fn placed_within(
        &self,
        aim: &[&Card],
        device: Option<Device>,
        headroom: u64,
    ) -> Result<(Placed, Budget), NotPlanned> {
        // The program of other steps does not depend on the available memory.
        let is_known = !self.training || !self.blueprint.takes_what_fits() || !aim.is_empty() && *aim == self.cards;
        if is_known {
            return self.placed_as(&self.program, &self.tables, aim);
        }
        let room = room_within(aim, device, headroom, self.ranks());
        let program = self.program_within(&self.sizes(aim), room)?;
        self.placed_as(&program, &tables(&program), aim)
    }

    fn placed_as(
        &self,
        program: &Program,
        tables: &OwnedTables,
        aim: &[&Card],
    ) -> Result<(Placed, Budget), NotPlanned> {
        let limited = tables.as_tables().with_workspaces(self.sizes(aim).workspaces);
        let packed = pack_at(&limited, self.batch, self.precision);
        let (budget, offsets) = packed.map_err(|error| NotPlanned::Plan(self.batch, error))?;
        let compiled = Compiled {
            program: &program.encode(),
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
