//! A search with backtracking, which places tensors from the lowest address to the highest.
//!
//! In any packing every tensor can move down until it lies on another one that it lives with, or at the bottom. Ordered by address, each tensor then
//! begins at the highest end of those before it that it lives with. So only such packings are looked at, and of two orders with one result only one:
//! no tensor is placed below the last, and tensors at one address come in the order of their ranks. A branch ends if
//!
//! * at some time the lowest address that is still of use, and the bytes of what has no place yet, come to more than the size that is aimed at;
//! * some tensor without a place would fit below the next one, where nothing could come any more.
//!
//! Ranks decide how soon a packing is found, and none is best for all tensors. So the search begins again and again, each time after few branches, and
//! gives a higher rank to tensors at those times at which branches ended. The idea of the search is that of
//! [MiniMalloc](https://doi.org/10.1145/3623278.3624752), and that of the ranks comes from solvers of constraints (`dom/wdeg`).

use super::Span;
use super::backtracking::{Backtracking, Limit, Sized, Tensors};
use super::bucket_sort::sorted;
use alloc::vec;
use alloc::vec::Vec;

/// The most units in which a size is counted, so that no sum of two overflows.
const MOST_UNITS: u64 = 1 << 29;

/// The units of blame that one search shares out among moments.
const BLAME: u64 = 1 << 16;

/// Blame loses one part in so many before a search adds to it.
const FORGETS: u64 = 16;

/// A rank is up to one part in so many higher by chance.
const CHANCE: u64 = 32;

/// The bits of the factors by which blame and chance change a key.
const FACTORS: u32 = 26;

/// The lowest bits of a changed key, which decide nothing. They would take time to be sorted.
const COARSE: u32 = 24;

/// The value by which tensors are ranked without blame, the largest first.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Ranks {
    /// Bytes times moments.
    Area,
    /// Bytes times the square of moments.
    Length,
    /// The root of bytes, times moments.
    Width,
    /// Moments, then bytes.
    LengthFirst,
    /// The most bytes alive at a moment of the tensor, then bytes times moments.
    Crowd,
    /// The most bytes alive, then moments.
    CrowdedLength,
}

impl Ranks {
    /// The ranks that are tried without blame.
    pub(super) const PLAIN: [Ranks; 4] = [Ranks::Area, Ranks::Crowd, Ranks::CrowdedLength, Ranks::LengthFirst];

    /// The ranks that are tried with blame.
    pub(super) const BLAMED: [Ranks; 4] = [Ranks::Area, Ranks::Length, Ranks::Width, Ranks::LengthFirst];
}

/// Tensors that are searched. All have a size, and some live at the first moment.
pub(super) struct Canonical {
    tensors: Tensors,
    /// Bytes of a unit.
    unit: u64,
    /// The looks in the time that it takes to rank all tensors.
    preparation: u64,
    /// The blame of each moment for branches that ended.
    blame: Vec<u64>,
    /// The state of a linear congruential generator.
    random: u64,
}

/// Returns the largest value at the moments of a tensor.
fn most_in<T: Copy + Default + PartialOrd>(values: &[T], tensor: &Sized) -> T {
    let (mut most, mut moment) = (T::default(), tensor.first as usize);
    while moment <= tensor.last as usize {
        if values[moment] > most {
            most = values[moment];
        }
        moment += 1;
    }
    most
}

impl Canonical {
    /// Prepares searches for packings of at most `most` bytes. `None` if a tensor has more, or if tensors live at more moments than are listed.
    pub(super) fn new(spans: &[Span], most: u64) -> Option<Canonical> {
        let common = spans.iter().fold(0, |common, span| divisor(common, span.bytes)).max(1);
        // Sizes round up to units that are multiples of all.
        let unit = common.checked_mul((most / common).div_ceil(MOST_UNITS).max(1))?;
        let sized = |span: &Span| {
            let units = i32::try_from(span.bytes.div_ceil(unit)).ok().filter(|_| span.bytes <= most)?;
            Some(Sized { units, first: span.first, last: span.last })
        };
        let sized: Vec<Sized> = spans.iter().map(sized).collect::<Option<_>>()?;
        let preparation = sized.iter().map(|sized| sized.length() / 4 + 20).sum();
        let tensors = Tensors::new(sized)?;
        let blame = vec![0; tensors.live.len()];
        Some(Canonical { tensors, unit, preparation, blame, random: 1 })
    }

    /// Writes a packing of at most `top` bytes, by ranks without blame, and returns true if it finds one.
    pub(super) fn pack(&mut self, offsets: &mut [u64], top: u64, ranks: Ranks, limit: Limit, looks: &mut u64) -> bool {
        let keys: Vec<[u64; 2]> = (0..self.tensors.sized.len()).map(|at| self.key(at, ranks)).collect();
        // A sort keeps the order of equal keys.
        let by_second = sorted(keys.iter().map(|[_, second]| !second));
        let by_first = sorted(by_second.iter().map(|&at| !keys[at as usize][0]));
        let order: Vec<u32> = by_first.into_iter().map(|at| by_second[at as usize]).collect();
        self.search(offsets, top, &order, limit, looks)
    }

    /// Writes a packing as [`Canonical::pack`] does, by ranks that blame and chance change.
    pub(super) fn pack_blamed(
        &mut self,
        offsets: &mut [u64],
        top: u64,
        ranks: Ranks,
        limit: Limit,
        looks: &mut u64,
    ) -> bool {
        let mean = (self.blame.iter().sum::<u64>() / self.blame.len().max(1) as u64).max(1);
        let mut keys: Vec<u64> = (0..self.tensors.sized.len()).map(|at| self.key(at, ranks)[0]).collect();
        // The largest key takes all bits that the factors below leave.
        let shift = keys.iter().copied().max().unwrap_or(0).leading_zeros();
        for (key, tensor) in keys.iter_mut().zip(&self.tensors.sized) {
            let blame = most_in(&self.blame, tensor);
            // A fifth of the mean is the least, and no more than 2^20 parts of it count.
            let blamed = (1024 / 5 + (1024 * blame / mean).min(1 << 30)).isqrt();
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let chance = 1024 + (self.random >> 33) % (1024 / CHANCE);
            *key = (*key << shift >> FACTORS) * (blamed * chance);
        }
        let order = sorted(keys.iter().map(|key| !(key >> COARSE)));
        self.search(offsets, top, &order, limit, looks)
    }

    /// Returns the values by which a tensor is ranked.
    fn key(&self, at: usize, ranks: Ranks) -> [u64; 2] {
        let tensor = self.tensors.sized[at];
        let (units, length) = (tensor.units as u64, tensor.length());
        let area = units * length;
        match ranks {
            Ranks::Area => [area, length],
            Ranks::Length => [area * length.min(1 << 11), length],
            Ranks::Width => [(units << 16).isqrt() * length, units],
            Ranks::LengthFirst => [length, units],
            Ranks::Crowd => [most_in(&self.tensors.live, &tensor) as u64, area],
            Ranks::CrowdedLength => [most_in(&self.tensors.live, &tensor) as u64, length],
        }
    }

    /// Searches with tensors in this order. Takes its looks from `looks`, and leaves `offsets` if it finds nothing.
    fn search(&mut self, offsets: &mut [u64], top: u64, order: &[u32], limit: Limit, looks: &mut u64) -> bool {
        let mut ranks = vec![0; self.tensors.sized.len()];
        for (rank, &tensor) in order.iter().enumerate() {
            ranks[tensor as usize] = rank as u32;
        }
        *looks = looks.saturating_sub(self.preparation);
        let limit = Limit { looks: limit.looks.min(*looks), ..limit };
        let mut search = Backtracking::new(
            &self.tensors,
            &ranks,
            order,
            i32::try_from(top / self.unit).unwrap_or(i32::MAX / 2),
            limit,
        );
        let finds = search.finds();
        let Backtracking { addresses, blame, limit: Limit { looks: left, .. }, .. } = search;
        *looks -= limit.looks - left;
        if finds {
            for (offset, address) in offsets.iter_mut().zip(addresses) {
                *offset = address as u64 * self.unit;
            }
            return true;
        }
        let all = blame.iter().sum::<u64>().max(1);
        for (old, new) in self.blame.iter_mut().zip(blame) {
            *old = *old - *old / FORGETS + new * BLAME / all;
        }
        false
    }
}

/// Returns the largest number that divides both.
fn divisor(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: Limit = Limit { branches: u64::MAX, looks: u64::MAX };

    /// Returns the size of the smallest packing: that of some order in which tensors are dropped.
    fn smallest(spans: &[Span], placed: &mut Vec<(usize, u64)>) -> u64 {
        let mut best = u64::MAX;
        for tensor in 0..spans.len() {
            if placed.iter().any(|&(other, _)| other == tensor) {
                continue;
            }
            let own = spans[tensor];
            let meets = |other: Span| other.first <= own.last && own.first <= other.last;
            let below = placed.iter().filter(|&&(other, _)| meets(spans[other]));
            let end = own.bytes + below.map(|&(_, end)| end).max().unwrap_or(0);
            placed.push((tensor, end));
            best = best.min(smallest(spans, placed).max(end));
            placed.pop();
        }
        if best == u64::MAX { 0 } else { best }
    }

    fn is_valid(spans: &[Span], offsets: &[u64], top: u64) -> bool {
        let end = |at: usize| offsets[at] + spans[at].bytes;
        let meet = |a: usize, b: usize| spans[a].first <= spans[b].last && spans[b].first <= spans[a].last;
        let all = 0..spans.len();
        all.clone()
            .all(|a| end(a) <= top && (0..a).all(|b| !meet(a, b) || end(a) <= offsets[b] || end(b) <= offsets[a]))
    }

    fn spans() -> impl Strategy<Value = Vec<Span>> {
        let span = (1u64..9, 0u32..6, 0u32..4).prop_map(|(bytes, first, more)| Span {
            bytes: bytes * 256,
            first,
            last: first + more,
        });
        prop::collection::vec(span, 1..7)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Branches that end early held no smaller packing: without a limit, the smallest one is found by any ranks, and nothing below it.
        #[test]
        fn the_smallest_packing_is_found(spans in spans()) {
            let most = smallest(&spans, &mut Vec::new());
            let mut offsets = vec![0; spans.len()];
            let mut canonical = Canonical::new(&spans, most).unwrap();
            for ranks in Ranks::PLAIN.into_iter().chain(Ranks::BLAMED) {
                let mut looks = u64::MAX;
                prop_assert!(!canonical.pack(&mut offsets, most - 256, ranks, ALL, &mut looks));
                prop_assert!(canonical.pack(&mut offsets, most, ranks, ALL, &mut looks));
                prop_assert!(is_valid(&spans, &offsets, most));
                prop_assert!(!canonical.pack_blamed(&mut offsets, most - 256, ranks, ALL, &mut looks));
                offsets.fill(0);
                prop_assert!(canonical.pack_blamed(&mut offsets, most, ranks, ALL, &mut looks));
                prop_assert!(is_valid(&spans, &offsets, most));
            }
        }
    }

    #[test]
    fn a_search_ends_at_its_limit() {
        let spans: Vec<Span> =
            (0..40).map(|at| Span { bytes: 256 * (1 + at % 7), first: at as u32, last: 40 }).collect();
        let top = spans.iter().map(|span| span.bytes).sum();
        let mut canonical = Canonical::new(&spans, top).unwrap();
        let mut offsets = vec![7; spans.len()];
        let mut looks = 100;
        let few = Limit { branches: 3, looks: u64::MAX };
        assert!(!canonical.pack(&mut offsets, top, Ranks::Area, few, &mut looks));
        assert_eq!((offsets[0], looks), (7, 0), "three branches take more than a hundred looks");
        let mut looks = 1_000_000;
        assert!(!canonical.pack(&mut offsets, top, Ranks::Area, few, &mut looks));
        assert!(looks > 990_000, "{looks}");
        assert!(canonical.pack(&mut offsets, top, Ranks::Area, ALL, &mut looks));
        assert!(is_valid(&spans, &offsets, top));
    }

    /// Sizes of any magnitude are counted in units, of which there are not too many.
    #[test]
    fn large_sizes_round_up_to_units() {
        let spans = [(1 << 50, 0, 1), ((1 << 50) + 256, 1, 2), (256, 2, 3)].map(|(bytes, first, last)| Span {
            bytes,
            first,
            last,
        });
        let top = (1 << 51) + (1 << 30);
        let mut canonical = Canonical::new(&spans, top).unwrap();
        let mut offsets = vec![0; 3];
        assert!(canonical.pack(&mut offsets, top, Ranks::Area, ALL, &mut { u64::MAX }));
        assert!(is_valid(&spans, &offsets, top) && offsets.iter().all(|offset| offset % 256 == 0), "{offsets:?}");
        assert!(Canonical::new(&spans, 1 << 50).is_none(), "a tensor has more");
    }

    #[test]
    fn too_many_moments_are_not_listed() {
        let spans = vec![Span { bytes: 256, first: 0, last: 6999 }; 5000];
        assert!(Canonical::new(&spans, 256 * 5000).is_none());
        assert!(Canonical::new(&spans[..4000], 256 * 5000).is_some());
    }
}
