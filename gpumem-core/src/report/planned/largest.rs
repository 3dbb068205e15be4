//! The largest batch of a step that the compiler would lower anew at that batch: see [`climb`].

use super::super::Arenas;
use super::Planned;
use crate::cards::Card;
use crate::lower::{MOST_PROGRAMS, OwnedTables, climb};
use crate::report::max_batch::ByBatch;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use core::cell::RefCell;

/// A step by the batch for which it is lowered. `None` if it cannot be lowered.
pub(super) type ByLowering = BTreeMap<u64, Option<Rc<Lowered>>>;

/// A step that is lowered for another batch, with its budgets by the scratch limit of matrix products.
#[derive(Debug)]
pub(super) struct Lowered {
    tables: OwnedTables,
    budgets: RefCell<BTreeMap<u64, ByBatch>>,
}

impl Planned {
    /// Returns the largest batch whose arena has at most `room` bytes, for these target cards. 0 if there is none.
    pub fn largest_batch(&self, aim: &[&Card], room: u64) -> u64 {
        let fixed = self.with_arenas(aim, |arenas| arenas.largest(room));
        let is_lowered_once = self.blueprint.training.as_ref().is_none_or(|steps| steps.ordered_at.is_some());
        if !self.training || is_lowered_once || self.blueprint.decides() {
            return fixed;
        }
        let parts = self.tables.as_tables().parts.max(1);
        let mut largest = climb(fixed, parts, |batch| largest_of(self, aim, batch, room));
        for _ in 0..MOST_PROGRAMS {
            let own = largest_of(self, aim, largest.max(1), room);
            if own >= largest {
                return largest;
            }
            largest = own;
        }
        largest
    }

    /// Returns the step as it is lowered for this batch.
    ///
    /// Programs for a power of two and for the next one are usually the same. They are then that of all batches between the two.
    fn lowered_near(&self, batch: u64) -> Option<Rc<Lowered>> {
        let low = 1 << batch.max(1).ilog2();
        let (lower, upper) = (self.lowered_at(low), self.lowered_at(low.saturating_mul(2)));
        let is_same = lower.as_ref().zip(upper.as_ref()).is_some_and(|(lower, upper)| lower.tables == upper.tables);
        if is_same { lower } else { self.lowered_at(batch) }
    }

    fn lowered_at(&self, batch: u64) -> Option<Rc<Lowered>> {
        if let Some(known) = self.lowered.borrow().get(&batch) {
            return known.clone();
        }
        let plan = self.at(batch).ok();
        let lowered = plan.map(|plan| Rc::new(Lowered { tables: plan.tables, budgets: RefCell::default() }));
        self.lowered.borrow_mut().insert(batch, lowered.clone());
        lowered
    }
}

/// Returns the largest batch of the program for `batch`. 0 if none fits, or the step cannot be lowered for it.
fn largest_of(plan: &Planned, aim: &[&Card], batch: u64, room: u64) -> u64 {
    let Some(step) = plan.lowered_near(batch) else { return 0 };
    let workspaces = plan.sizes(aim).workspaces;
    let mut budgets = step.budgets.borrow_mut();
    let known = budgets.entry(workspaces.product).or_default();
    let mut arenas = Arenas::new(step.tables.as_tables().with_workspaces(workspaces), plan.precision);
    arenas.known = core::mem::take(known);
    let largest = arenas.largest(room);
    *known = arenas.known;
    largest
}
