//! An order that needs less than the rule.

use super::model::{Model, State};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The search ends where it knows the least that it can reach to this part of the peak.
const PARTS: u64 = 256;

/// Backward passes of at most so many pieces are small: other ways are tried, so many times.
const SMALL: usize = 64;
const TRIES: usize = 50;

/// Which of the pieces comes next that could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    /// The first one in the order of the rule.
    Rule,
    /// The one whose gradient was complete last: what was begun is finished first.
    Latest,
    /// The one behind which least is alive.
    Least,
}

/// The order that was found to need least at the model's batch, by the numbers of pieces, if it needs less than the rule.
pub(super) fn search(model: &Model) -> Option<Vec<usize>> {
    let rule = model.peak(0..model.pieces());
    let floor = model.floor();
    let mut best = (rule, None);
    let is_small = model.pieces() <= SMALL;
    let picks = if is_small { &[Pick::Rule, Pick::Latest, Pick::Least][..] } else { &[Pick::Rule, Pick::Latest] };
    for &pick in picks {
        let (mut low, mut high) = (floor, best.0);
        while let Some(limit) = Some(low + (high - low) / 2).filter(|_| high > low + rule / PARTS) {
            let tries = if is_small { TRIES } else { 0 };
            let listing = Listing { model, limit, pick, tries, failed: BTreeSet::new() };
            match listing.list() {
                Some(order) => {
                    let peak = model.peak(order.iter().copied());
                    high = peak.min(limit);
                    if peak + rule / PARTS < best.0 {
                        best = (peak, Some(order));
                    }
                }
                None => low = limit,
            }
        }
    }
    best.1
}

/// A place on the way to an order.
#[derive(Clone)]
struct Place {
    state: State,
    /// The pieces that could be next, in the order in which that became so.
    open: Vec<usize>,
    /// Those of them that were not tried, the best one last.
    untried: Vec<usize>,
}

/// A list of pieces in the making, of which none needs more than a limit.
struct Listing<'m> {
    model: &'m Model,
    limit: u64,
    pick: Pick,
    /// Where the way leads to nothing, so many other ones are tried.
    tries: usize,
    /// The pieces that were over where no way led on.
    failed: BTreeSet<Vec<bool>>,
}

impl Listing<'_> {
    fn start(&self) -> Place {
        let (state, mut open) = (self.model.start(), Vec::new());
        for pieces in self.model.of_nodes.iter().rev() {
            let is_open = pieces.first().is_some_and(|&piece| self.model.is_open(&state, piece));
            open.extend(pieces.iter().rev().filter(|_| is_open));
        }
        let untried = self.untried(&state, &open, None);
        Place { state, open, untried }
    }

    /// The pieces that could be next and need no more than the limit, the best one last.
    fn untried(&self, state: &State, open: &[usize], last: Option<usize>) -> Vec<usize> {
        let model = self.model;
        let mut all: Vec<usize> =
            open.iter().copied().filter(|&piece| state.needs(model, piece) <= self.limit).collect();
        match self.pick {
            Pick::Rule => all.sort_unstable_by_key(|&piece| Reverse(piece)),
            Pick::Latest => {}
            Pick::Least => all.sort_by_cached_key(|&piece| Reverse((state.after(model, piece), piece))),
        }
        // What is one pass over memory in the order of the rule is one here.
        let next = last.filter(|&last| model.sticks(last)).map(|last| last + 1);
        if let Some(at) = all.iter().position(|&piece| Some(piece) == next) {
            let next = all.remove(at);
            all.push(next);
        }
        all
    }

    fn behind(&self, place: Place, piece: usize) -> Place {
        let Place { mut state, mut open, .. } = place;
        state.run(self.model, piece);
        open.retain(|&other| other != piece);
        let mut known = None;
        for value in self.model.values(piece) {
            if state.is_complete(value) && known != Some(value) {
                open.extend(self.model.of_nodes[value].iter().rev());
                known = Some(value);
            }
        }
        let untried = self.untried(&state, &open, Some(piece));
        Place { state, open, untried }
    }

    /// Takes one piece after the other; `None` where no way was found.
    fn list(mut self) -> Option<Vec<usize>> {
        let (mut places, mut order) = (Vec::from([self.start()]), Vec::with_capacity(self.model.pieces()));
        let goes_back = self.tries > 0;
        while order.len() < self.model.pieces() {
            if let Some(piece) = places.last_mut()?.untried.pop() {
                // What is not tried again need not be there.
                let place = if goes_back { places.last().cloned() } else { places.pop() };
                let next = self.behind(place?, piece);
                if self.failed.contains(&next.state.over) {
                    continue;
                }
                places.push(next);
                order.push(piece);
                continue;
            }
            self.tries = self.tries.checked_sub(1)?;
            self.failed.insert(places.pop()?.state.over);
            order.pop();
        }
        Some(order)
    }
}
