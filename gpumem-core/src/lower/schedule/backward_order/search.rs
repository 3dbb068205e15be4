//! The search for an order that needs less memory than the default one.
//!
//! It bisects the limit between a lower bound and the best peak so far. For each limit it lists one piece after the other, none of which may
//! exceed it.

use super::model::{Model, State};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The divisor of the default peak that gives the precision of the search.
const PARTS: u64 = 256;

/// The most pieces of a small backward pass. There, the search may go back and try another piece, `TRIES` times.
const SMALL: usize = 64;
const TRIES: usize = 50;

/// The choice of the next piece among those that may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    /// The first one in the default order.
    Rule,
    /// The one whose gradient was completed last, so that what was begun is finished first.
    Latest,
    /// The one after which least is alive.
    Least,
}

/// Returns the order that was found to need least memory at the model's batch, as numbers of pieces. `None` if none needs less than the default
/// order.
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

/// A point on the way to an order.
#[derive(Clone)]
struct Place {
    state: State,
    /// The pieces that may come next, in the order in which they became ready.
    open: Vec<usize>,
    /// Those of them that were not tried, the best one last.
    untried: Vec<usize>,
}

/// An order under construction, in which no piece needs more than `limit` bytes.
struct Listing<'m> {
    model: &'m Model,
    limit: u64,
    pick: Pick,
    /// The number of times that the search may still go back.
    tries: usize,
    /// The sets of pieces after which no piece could come.
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

    /// Returns the pieces that may come next and need no more than the limit, the best one last.
    fn untried(&self, state: &State, open: &[usize], last: Option<usize>) -> Vec<usize> {
        let model = self.model;
        let mut all: Vec<usize> =
            open.iter().copied().filter(|&piece| state.needs(model, piece) <= self.limit).collect();
        match self.pick {
            Pick::Rule => all.sort_unstable_by_key(|&piece| Reverse(piece)),
            Pick::Latest => {}
            Pick::Least => all.sort_by_cached_key(|&piece| Reverse((state.after(model, piece), piece))),
        }
        // Pieces that are one pass over memory in the default order stay together.
        let next = last.filter(|&last| model.sticks(last)).map(|last| last + 1);
        if let Some(at) = all.iter().position(|&piece| Some(piece) == next) {
            let next = all.remove(at);
            all.push(next);
        }
        all
    }

    fn following(&self, place: Place, piece: usize) -> Place {
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

    /// Runs one piece after the other; `None` if no order was found.
    fn list(mut self) -> Option<Vec<usize>> {
        let (mut places, mut order) = (Vec::from([self.start()]), Vec::with_capacity(self.model.pieces()));
        let goes_back = self.tries > 0;
        while order.len() < self.model.pieces() {
            if let Some(piece) = places.last_mut()?.untried.pop() {
                // A place to which the search does not go back is not kept.
                let place = if goes_back { places.last().cloned() } else { places.pop() };
                let next = self.following(place?, piece);
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
