//! Searches that take turns, from a packing to smaller ones: the last resort of `pack_slice`, and for seconds where a packing is kept.

use super::Span;
use super::backtracking::Limit;
use super::canonical::{Canonical, Ranks};
use alloc::vec;
use alloc::vec::Vec;

/// The effort that single searches may make.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// The looks of a search in the first round. Each round that finds nothing doubles them.
    looks: u64,
    /// The most branches of a search with blame, for each tensor.
    branches: u64,
}

/// The effort where there are few looks in all.
pub(super) const SHORT: Effort = Effort { looks: 1 << 14, branches: 2 };

/// The effort where there are many.
pub(super) const LONG: Effort = Effort { looks: 1 << 20, branches: 4 };

/// Sizes that searches without blame aim at: eighths of the way from the bound to the best packing.
const EIGHTHS: [u64; 4] = [0, 2, 4, 6];

/// The looks of all searches with blame in a round, for each look of a search without blame. That one succeeds soon or not at all.
const BLAMED: u64 = 64;

/// The parts into which the looks of a search in a round are divided.
const MOST_SHARES: u64 = 8;

/// The part of the way from the bound to the best packing that a search with blame aims at after a success, as a fraction.
const NEARER: [u64; 2] = [2, 3];

/// The size that a search with blame aims at comes closer to the best packing by one part in so many after each failure.
const YIELDS: u64 = 50;

/// Improves a packing until it has `goal` bytes, or until about `looks` tensors were looked at. Returns its size.
pub(super) fn improve(spans: &[Span], offsets: &mut [u64], goal: u64, mut looks: u64) -> u64 {
    let tensors: Vec<usize> = (0..spans.len()).filter(|&at| spans[at].bytes > 0).collect();
    improve_some(spans, &tensors, offsets, goal, SHORT, &mut looks);
    size(spans, offsets)
}

/// Improves the packing of some of the tensors, which live with no others.
pub(super) fn improve_some(
    all: &[Span],
    tensors: &[usize],
    offsets: &mut [u64],
    goal: u64,
    effort: Effort,
    looks: &mut u64,
) {
    // A search that places all tensors once looks at each of them again for each one that it places.
    if (tensors.len() as u64).saturating_pow(2) > *looks {
        return;
    }
    let begin = tensors.iter().map(|&at| all[at].first).min().unwrap_or(0);
    let moved = |&at: &usize| Span { first: all[at].first - begin, last: all[at].last - begin, ..all[at] };
    let spans: Vec<Span> = tensors.iter().map(moved).collect();
    let own: Vec<u64> = tensors.iter().map(|&at| offsets[at]).collect();
    let mut each = effort.looks;
    let Some(mut search) = Rounds::new(&spans, own, goal) else { return };
    // The part of `each` that each kind of search has.
    let mut shares = [MOST_SHARES; 2];
    while *looks > 0 && search.size > search.goal {
        let part = |share: u64| (each / MOST_SHARES).saturating_mul(share);
        let plain = search.searches_plain(part(shares[0]), looks);
        let blamed = search.searches_blamed(part(shares[1]), effort.branches, looks);
        let found = [plain, blamed];
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
    canonical: Canonical,
    /// The size that ends the search.
    goal: u64,
    size: u64,
    offsets: Vec<u64>,
    /// A packing that is tried.
    trial: Vec<u64>,
    /// The number of searches with blame.
    blamed: usize,
    /// The size that searches with blame aim at.
    top: u64,
}

impl Rounds<'_> {
    /// Prepares searches. `None` if there is too much for them to look at.
    fn new(spans: &[Span], offsets: Vec<u64>, goal: u64) -> Option<Rounds<'_>> {
        let size = size(spans, &offsets);
        let canonical = Canonical::new(spans, size)?;
        let trial = vec![0; spans.len()];
        let mut search = Rounds { spans, canonical, goal, size, offsets, trial, blamed: 0, top: 0 };
        search.top = search.part(NEARER);
        Some(search)
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
                if self.canonical.pack(&mut self.trial, top, ranks, limit, looks) && self.take() {
                    return true;
                }
            }
        }
        false
    }

    /// Searches again and again with blame, and returns true if there is a better packing.
    fn searches_blamed(&mut self, each: u64, branches: u64, looks: &mut u64) -> bool {
        let until = looks.saturating_sub(each.saturating_mul(BLAMED));
        let limit = Limit { branches: branches * self.spans.len() as u64, looks: u64::MAX };
        let mut found = false;
        while *looks > until && self.size > self.goal {
            let ranks = Ranks::BLAMED[self.blamed % Ranks::BLAMED.len()];
            self.blamed += 1;
            if self.canonical.pack_blamed(&mut self.trial, self.top, ranks, limit, looks) && self.take() {
                found = true;
            } else {
                self.top += (self.size - 1 - self.top).div_ceil(YIELDS);
            }
        }
        found
    }
}

fn size(spans: &[Span], offsets: &[u64]) -> u64 {
    spans.iter().zip(offsets).map(|(span, offset)| offset + span.bytes).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_begins_if_it_can_place_all() {
        let span = |bytes, first, last| Span { bytes, first, last };
        let spans = [span(256, 0, 1), span(512, 1, 3), span(256, 3, 4)];
        let mut offsets = [0, 256, 768];
        let mut looks = 8;
        improve_some(&spans, &[0, 1, 2], &mut offsets, 768, SHORT, &mut looks);
        assert_eq!((offsets, looks), ([0, 256, 768], 8), "three tensors are looked at nine times");
        assert_eq!(improve(&spans, &mut offsets, 768, 10_000), 768);
        assert_eq!(offsets, [512, 0, 512]);
    }
}
