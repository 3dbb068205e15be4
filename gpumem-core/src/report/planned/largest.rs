//! The largest batch of a step that the compiler would lower anew at that batch.
//!
//! The backward pass of a step is ordered for its batch. Where weights are most of the memory, another order is best than where activations
//! are. So the program of the batch that is written does not tell how much memory a much larger one takes.

use super::super::Arenas;
use super::Planned;
use crate::cards::Card;
use crate::lower::OwnedTables;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;

/// The most programs between which the search for one batch goes on.
const MOST_PROGRAMS: usize = 8;

/// The tables of a step by the batch for which it is lowered. `None` if it cannot be lowered.
pub(super) type ByLowering = BTreeMap<u64, Option<Rc<OwnedTables>>>;

impl Planned {
    /// Returns the largest batch whose arena has at most `room` bytes, for these target cards. 0 if there is none.
    pub fn largest_batch(&self, aim: &[&Card], room: u64) -> u64 {
        let fixed = self.with_arenas(aim, |arenas| arenas.largest(room));
        let is_lowered_once = self.blueprint.training.as_ref().is_none_or(|steps| steps.ordered_at.is_some());
        if !self.training || is_lowered_once || self.blueprint.decides() {
            return fixed;
        }
        let parts = self.tables.as_tables().parts.max(1);
        let mut largest = fixed;
        for _ in 0..MOST_PROGRAMS {
            // The program of the next larger batch may need less.
            let next = largest_of(self, aim, (largest + 1).next_multiple_of(parts), room);
            if next <= largest {
                break;
            }
            largest = next;
        }
        for _ in 0..MOST_PROGRAMS {
            let own = largest_of(self, aim, largest.max(1), room);
            if own >= largest {
                return largest;
            }
            largest = own;
        }
        largest
    }

    /// Returns the tables of the step as it is lowered for this batch.
    ///
    /// Programs for a power of two and for the next one are usually the same. They are then that of all batches between the two.
    fn tables_at(&self, batch: u64) -> Option<Rc<OwnedTables>> {
        let low = 1 << batch.max(1).ilog2();
        let (lower, upper) = (self.lowered_at(low), self.lowered_at(low.saturating_mul(2)));
        if lower == upper { lower } else { self.lowered_at(batch) }
    }

    fn lowered_at(&self, batch: u64) -> Option<Rc<OwnedTables>> {
        if let Some(known) = self.lowered.borrow().get(&batch) {
            return known.clone();
        }
        let tables = self.at(batch).ok().map(|plan| Rc::new(plan.tables));
        self.lowered.borrow_mut().insert(batch, tables.clone());
        tables
    }
}

/// Returns the largest batch of the program for `batch`. 0 if none fits, or the step cannot be lowered for it.
fn largest_of(plan: &Planned, aim: &[&Card], batch: u64, room: u64) -> u64 {
    let Some(tables) = plan.tables_at(batch) else { return 0 };
    let workspaces = plan.sizes(aim).workspaces;
    Arenas::new(tables.as_tables().with_workspaces(workspaces), plan.precision).largest(room)
}
