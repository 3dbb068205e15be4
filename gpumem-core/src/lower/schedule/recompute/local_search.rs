//! A local search that improves a level: it changes one decision or trades two, and counts exactly.

use super::emit::{Emission, Treatment};
use super::measure::StepBytes;
use alloc::vec::Vec;

/// The largest distance between two values that are traded.
const NEIGHBOURS: usize = 6;

/// Choices whose order was counted exactly.
#[derive(Clone, Debug)]
pub(in crate::lower) struct Candidate {
    pub(in crate::lower) peak: u64,
    pub(in crate::lower) cost: u64,
    pub(in crate::lower) choices: Vec<Treatment>,
}

/// The state of the local search.
pub(in crate::lower) struct Polish<'p, 's> {
    pub(in crate::lower) emission: &'p mut Emission<'s>,
    pub(in crate::lower) sizes: &'p StepBytes,
    /// The values that are decided, and a flag for each value of the step that must not be kept.
    pub(in crate::lower) free: &'p [u32],
    pub(in crate::lower) dropped: &'p [bool],
    /// The number of operations that may still be emitted.
    pub(in crate::lower) budget: usize,
    /// The number of orders that were counted.
    pub(in crate::lower) emissions: usize,
}

impl Polish<'_, '_> {
    /// Makes a candidate cheaper while it stays within `room` bytes, until nothing helps or the budget is spent.
    pub(in crate::lower) fn improve(&mut self, best: &mut Candidate, room: u64) {
        loop {
            let before = best.cost;
            for at in 0..self.free.len() {
                self.improve_at(best, room, at);
            }
            if best.cost == before || self.budget == 0 {
                return;
            }
        }
    }

    fn improve_at(&mut self, best: &mut Candidate, room: u64, at: usize) {
        let value = self.free[at] as usize;
        for choice in [Treatment::Keep, Treatment::Once, Treatment::Each] {
            let is_same = choice == best.choices[value];
            if is_same || (choice == Treatment::Keep && self.dropped[value]) || self.budget == 0 {
                continue;
            }
            let mut choices = best.choices.clone();
            choices[value] = choice;
            let Some(tried) = self.count(choices, best.cost) else { continue };
            if tried.peak <= room {
                *best = tried;
                continue;
            }
            if choice == Treatment::Keep {
                self.trade(best, &tried, room, at);
            }
        }
    }

    /// Drops a value near the one that `tried` keeps, so that the candidate fits into `room` bytes.
    fn trade(&mut self, best: &mut Candidate, tried: &Candidate, room: u64, at: usize) {
        let near = at.saturating_sub(NEIGHBOURS)..(at + NEIGHBOURS + 1).min(self.free.len());
        for other in near.filter(|&other| other != at) {
            let value = self.free[other] as usize;
            if tried.choices[value] != Treatment::Keep {
                continue;
            }
            let mut choices = tried.choices.clone();
            choices[value] = Treatment::Once;
            if let Some(traded) = self.count(choices, best.cost).filter(|traded| traded.peak <= room) {
                *best = traded;
                return;
            }
        }
    }

    /// Returns the peak and the cost of these choices. `None` if they cost `less_than` or more, or the budget is spent.
    fn count(&mut self, choices: Vec<Treatment>, less_than: u64) -> Option<Candidate> {
        if self.budget == 0 {
            return None;
        }
        self.emission.whole(&choices);
        self.emissions += 1;
        self.budget = self.budget.saturating_sub(self.emission.order.len());
        let cost = self.sizes.cost(&self.emission.order);
        let peak = self.sizes.peak(self.emission);
        (cost < less_than).then_some(Candidate { peak, cost, choices })
    }
}
