//! Searches that take turns, from a packing to smaller ones: the last resort of `pack_slice`, and for seconds where a packing is kept.

use super::Span;
use super::canonical::{Canonical, Limit, Ranks};
use super::repair::{Rule, Settling, repair};
use alloc::vec;
use alloc::vec::Vec;

/// The looks of the first attempts, where there are few in all and where there are many. Each round that finds nothing doubles them.
pub(super) const FIRST_LOOKS: [u64; 2] = [1 << 14, 1 << 18];

/// Sizes that searches without blame aim at: eighths of the way from the bound to the best packing.
const EIGHTHS: [u64; 4] = [0, 2, 4, 6];

/// Sizes that repairs aim at, in the same parts, in turn: they hardly ever come closer to the bound.
const REPAIRED: [u64; 3] = [4, 6, 7];

/// The looks of all searches with blame in a round, and of one repair, for each look of a search without blame. That one succeeds soon or not at all.
const BLAMED: u64 = 32;
const LONGER: u64 = 8;

/// The parts into which the looks of a search in a round are divided.
const MOST_SHARES: u64 = 8;

/// The looks of a search with backtracking in the time of one of a repair.
const SLOWER: u64 = 2;

/// The most branches of a search with blame, for each tensor.
const BRANCHES: u64 = 2;

/// The part of the way from the bound to the best packing that a search with blame aims at after a success, as a fraction.
const NEARER: [u64; 2] = [2, 3];

/// The size that a search with blame aims at comes closer to the best packing by one part in so many after each failure.
const YIELDS: u64 = 50;

/// The number of tensors above which no search with backtracking is made. Its tables grow with the square of the number.
const MOST_CANONICAL: usize = 4096;

/// The rules of repairs that begin with no tensor placed, by their halvings and how often all tensors move.
const REPAIRS: [(u32, usize); 3] = [(0, 32), (2, 128), (0, 512)];

/// Improves a packing until it has `goal` bytes, or until about `looks` tensors were looked at. Returns its size.
pub(super) fn improve(spans: &[Span], offsets: &mut [u64], goal: u64, mut looks: u64) -> u64 {
    let tensors: Vec<usize> = (0..spans.len()).filter(|&at| spans[at].bytes > 0).collect();
    improve_some(spans, &tensors, offsets, goal, FIRST_LOOKS[0], &mut looks);
    size(spans, offsets)
}

/// Improves the packing of some of the tensors, which live with no others. The first attempts have `each` looks.
pub(super) fn improve_some(
    all: &[Span],
    tensors: &[usize],
    offsets: &mut [u64],
    goal: u64,
    mut each: u64,
    looks: &mut u64,
) {
    let begin = tensors.iter().map(|&at| all[at].first).min().unwrap_or(0);
    let moved = |&at: &usize| Span { first: all[at].first - begin, last: all[at].last - begin, ..all[at] };
    let spans: Vec<Span> = tensors.iter().map(moved).collect();
    let own: Vec<u64> = tensors.iter().map(|&at| offsets[at]).collect();
    let mut search = Rounds::new(&spans, own, goal);
    // The part of `each` that each kind of search has.
    let mut shares = [MOST_SHARES; 3];
    while *looks > 0 && search.size > search.goal {
        let part = |share: u64| (each / MOST_SHARES).saturating_mul(share);
        let plain = search.searches_plain(part(shares[0]), looks);
        let repairs = search.repairs(part(shares[1]), looks);
        let blamed = search.searches_blamed(part(shares[2]), looks);
        let found = [plain, repairs, blamed];
        if found.contains(&true) {
            // A search that finds nothing while another one does is made less.
            shares = core::array::from_fn(|at| if found[at] { MOST_SHARES } else { (shares[at] / 2).max(1) });
        } else {
            each = each.saturating_mul(2);
        }
    }
    for (&at, offset) in tensors.iter().zip(search.offsets) {
        offsets[at] = offset;
    }
}

/// The best packing so far, and what looks for better ones.
struct Rounds<'a> {
    spans: &'a [Span],
    canonical: Option<Canonical>,
    /// The size that ends the search.
    goal: u64,
    size: u64,
    offsets: Vec<u64>,
    /// A packing that is tried.
    trial: Vec<u64>,
    /// The number of repairs, which gives each its seed.
    repairs: u64,
    /// The number of searches with blame.
    blamed: usize,
    /// The size that searches with blame aim at.
    top: u64,
}

impl Rounds<'_> {
    fn new(spans: &[Span], offsets: Vec<u64>, goal: u64) -> Rounds<'_> {
        let size = size(spans, &offsets);
        let canonical = (spans.len() <= MOST_CANONICAL).then(|| Canonical::new(spans, size)).flatten();
        let trial = vec![0; spans.len()];
        let mut search = Rounds { spans, canonical, goal, size, offsets, trial, repairs: 0, blamed: 0, top: 0 };
        search.top = search.part(NEARER);
        search
    }

    /// Returns the size at a part of the way from the goal to the best packing.
    fn part(&self, [part, whole]: [u64; 2]) -> u64 {
        let way = self.size.saturating_sub(self.goal);
        self.goal + (u128::from(way) * u128::from(part) / u128::from(whole)) as u64
    }

    /// Takes the packing that was tried, if it is better.
    fn take(&mut self) -> bool {
        let size = size(self.spans, &self.trial);
        let is_better = size < self.size;
        if is_better {
            self.size = size;
            self.offsets.copy_from_slice(&self.trial);
            self.top = self.part(NEARER);
        }
        is_better
    }

    /// Searches at several sizes, and returns true as soon as there is a better packing.
    fn searches_plain(&mut self, each: u64, looks: &mut u64) -> bool {
        for eighths in EIGHTHS {
            let top = self.part([eighths, 8]);
            for ranks in Ranks::PLAIN {
                let limit = Limit { branches: u64::MAX, looks: each };
                let Some(canonical) = &mut self.canonical else { return false };
                if canonical.pack(&mut self.trial, top, ranks, limit, looks) && self.take() {
                    return true;
                }
            }
        }
        false
    }

    /// Searches again and again with blame, and returns true if there is a better packing.
    fn searches_blamed(&mut self, each: u64, looks: &mut u64) -> bool {
        let until = looks.saturating_sub(each.saturating_mul(BLAMED));
        let limit = Limit { branches: BRANCHES * self.spans.len() as u64, looks: u64::MAX };
        let mut found = false;
        while *looks > until && self.size > self.goal {
            let Some(canonical) = &mut self.canonical else { return false };
            let ranks = Ranks::BLAMED[self.blamed % Ranks::BLAMED.len()];
            self.blamed += 1;
            if canonical.pack_blamed(&mut self.trial, self.top, ranks, limit, looks) && self.take() {
                found = true;
            } else {
                self.top += (self.size - 1 - self.top).div_ceil(YIELDS);
            }
        }
        found
    }

    /// Repairs, with nothing placed, and returns true as soon as there is a better packing.
    fn repairs(&mut self, each: u64, looks: &mut u64) -> bool {
        for (halvings, every) in REPAIRS {
            let top = self.part([REPAIRED[self.repairs as usize % REPAIRED.len()], 8]);
            self.repairs += 1;
            // Each tensor ends above the top, so that none has a place.
            for (start, span) in self.trial.iter_mut().zip(self.spans) {
                *start = (top + 1).saturating_sub(span.bytes);
            }
            let rule = Rule { seed: self.repairs, halvings, settling: Settling::BothWays(every), steps: usize::MAX };
            let most = each.saturating_mul(LONGER * SLOWER).min(*looks);
            *looks -= most;
            let most = usize::try_from(most / SLOWER).unwrap_or(usize::MAX);
            if repair(self.spans, &mut self.trial, top, most, rule) && self.take() {
                return true;
            }
        }
        false
    }
}

fn size(spans: &[Span], offsets: &[u64]) -> u64 {
    spans.iter().zip(offsets).map(|(span, offset)| offset + span.bytes).max().unwrap_or(0)
}
