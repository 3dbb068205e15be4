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
use super::repair::AT_ONCE;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The most units in which a size is counted, so that no sum of two overflows.
const MOST_UNITS: u64 = 1 << 29;

/// The units of blame that one search shares out among moments.
const BLAME: u64 = 1 << 16;

/// Blame loses one part in so many before a search adds to it.
const FORGETS: u64 = 16;

/// A rank is up to one part in so many higher by chance.
const CHANCE: u64 = 32;

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

/// A tensor, with its size in units.
#[derive(Clone, Copy)]
struct Sized {
    units: i32,
    first: u32,
    last: u32,
}

impl Sized {
    fn moments(self) -> core::ops::RangeInclusive<usize> {
        self.first as usize..=self.last as usize
    }

    fn length(self) -> u64 {
        u64::from(self.last - self.first + 1)
    }
}

/// Tensors that are searched. All have a size, and some live at the first moment.
pub(super) struct Canonical {
    sized: Vec<Sized>,
    /// Bytes of a unit.
    unit: u64,
    /// For each tensor the others that it lives with.
    beside: Vec<Vec<u32>>,
    /// The units alive at each moment.
    live: Vec<i32>,
    /// The blame of each moment for branches that ended.
    blame: Vec<u64>,
    /// The state of a linear congruential generator.
    random: u64,
}

/// The most that a search looks at.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    /// The most branches.
    pub(super) branches: u64,
    /// The most tensors.
    pub(super) looks: u64,
}

/// A tensor that may be placed next: its address, its rank, and its number.
type Next = (i32, u32, u32);

/// A point of the search: the tensors that may come next, and the changes made since the point before.
struct Branch {
    /// The number of candidates before those of this branch.
    from: usize,
    /// The tensor that was placed to get to the point after this one.
    placed: Option<u32>,
    /// The number of changes before that tensor was placed.
    changes: usize,
}

/// The state of a search.
struct Backtracking<'a> {
    given: &'a Canonical,
    ranks: &'a [u32],
    top: i32,
    /// The lowest address that is left to each tensor or, once it is placed, its own.
    lowest: Vec<i32>,
    is_placed: Vec<bool>,
    /// Units without a place at each moment.
    left: Vec<i32>,
    /// The lowest address that is of use at each moment.
    floors: Vec<i32>,
    /// Candidates of all branches, such that the first to be tried is the last of its branch.
    next: Vec<Next>,
    /// Tensors, and earlier values of `lowest`.
    changes: Vec<(u32, i32)>,
    blame: Vec<u64>,
    limit: Limit,
}

/// Returns for each tensor those that it lives with, by their numbers.
fn beside(sized: &[Sized]) -> Vec<Vec<u32>> {
    let mut by_first: Vec<usize> = (0..sized.len()).collect();
    by_first.sort_by_key(|&at| sized[at].first);
    let mut beside = vec![Vec::new(); sized.len()];
    for (place, &one) in by_first.iter().enumerate() {
        for &other in by_first[place + 1..].iter().take_while(|&&other| sized[other].first <= sized[one].last) {
            beside[one].push(other as u32);
            beside[other].push(one as u32);
        }
    }
    beside.iter_mut().for_each(|others| others.sort_unstable());
    beside
}

impl Canonical {
    /// Prepares searches for packings of at most `most` bytes. `None` if a tensor has more.
    pub(super) fn new(spans: &[Span], most: u64) -> Option<Canonical> {
        let common = spans.iter().fold(0, |common, span| divisor(common, span.bytes)).max(1);
        // Sizes round up to units that are multiples of all.
        let unit = common.checked_mul((most / common).div_ceil(MOST_UNITS).max(1))?;
        let sized = |span: &Span| {
            let units = i32::try_from(span.bytes.div_ceil(unit)).ok().filter(|_| span.bytes <= most)?;
            Some(Sized { units, first: span.first, last: span.last })
        };
        let sized: Vec<Sized> = spans.iter().map(sized).collect::<Option<_>>()?;
        let moments = spans.iter().map(|span| span.last as usize + 1).max().unwrap_or(0);
        let mut live = vec![0i32; moments];
        for tensor in &sized {
            for units in &mut live[tensor.moments()] {
                *units = units.checked_add(tensor.units)?;
            }
        }
        let beside = beside(&sized);
        Some(Canonical { sized, unit, beside, live, blame: vec![0; moments], random: 1 })
    }

    /// Writes a packing of at most `top` bytes, by ranks without blame, and returns true if it finds one.
    pub(super) fn pack(&mut self, offsets: &mut [u64], top: u64, ranks: Ranks, limit: Limit, looks: &mut u64) -> bool {
        let keys = (0..self.sized.len()).map(|at| self.key(at, ranks)).collect();
        self.search(offsets, top, keys, limit, looks)
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
        let mut keys = Vec::with_capacity(self.sized.len());
        for (at, tensor) in self.sized.iter().enumerate() {
            let blame = self.blame[tensor.moments()].iter().copied().max().unwrap_or(0);
            // A fifth of the mean is the least, and no more than 2^20 parts of it count.
            let blamed = (1024 / 5 + (1024 * blame / mean).min(1 << 30)).isqrt();
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let chance = 1024 + (self.random >> 33) % (1024 / CHANCE);
            let [key, second] = self.key(at, ranks);
            keys.push([key * u128::from(blamed * chance), second]);
        }
        self.search(offsets, top, keys, limit, looks)
    }

    /// Returns the values by which a tensor is ranked. The first has 73 bits at most.
    fn key(&self, at: usize, ranks: Ranks) -> [u128; 2] {
        let tensor = self.sized[at];
        let (units, length) = (tensor.units as u64, tensor.length());
        let area = units * length;
        let most = || self.live[tensor.moments()].iter().copied().max().unwrap_or(0) as u64;
        let (first, second) = match ranks {
            Ranks::Area => (area.into(), length),
            Ranks::Length => (u128::from(area) * u128::from(length.min(1 << 11)), length),
            Ranks::Width => (u128::from((units << 16).isqrt() * length), units),
            Ranks::LengthFirst => (length.into(), units),
            Ranks::Crowd => (most().into(), area),
            Ranks::CrowdedLength => (most().into(), length),
        };
        [first, second.into()]
    }

    /// Searches with tensors of the largest keys first. Takes its looks from `looks`, and leaves `offsets` if it finds nothing.
    fn search(&mut self, offsets: &mut [u64], top: u64, keys: Vec<[u128; 2]>, limit: Limit, looks: &mut u64) -> bool {
        let count = self.sized.len();
        let mut order: Vec<u32> = (0..count as u32).collect();
        order.sort_by_key(|&at| Reverse(keys[at as usize]));
        let mut ranks = vec![0; count];
        for (rank, &tensor) in order.iter().enumerate() {
            ranks[tensor as usize] = rank as u32;
        }
        let limit = Limit { looks: limit.looks.min(*looks), ..limit };
        let mut search = Backtracking {
            given: self,
            ranks: &ranks,
            top: i32::try_from(top / self.unit).unwrap_or(i32::MAX / 2),
            lowest: vec![0; count],
            is_placed: vec![false; count],
            left: self.live.clone(),
            floors: vec![0; self.live.len()],
            next: Vec::new(),
            changes: Vec::new(),
            blame: vec![0; self.live.len()],
            limit,
        };
        let finds = search.finds();
        let Backtracking { lowest, blame, limit: Limit { looks: left, .. }, .. } = search;
        *looks -= limit.looks - left;
        if finds {
            for (offset, lowest) in offsets.iter_mut().zip(lowest) {
                *offset = lowest as u64 * self.unit;
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

impl Backtracking<'_> {
    /// Places all tensors, and returns true if it can.
    fn finds(&mut self) -> bool {
        let mut branches: Vec<Branch> = Vec::new();
        let mut last = (0, 0, 0);
        while branches.len() < self.given.sized.len() {
            branches.push(Branch { from: self.next.len(), placed: None, changes: self.changes.len() });
            self.branch(last);
            // The last branch that goes on.
            last = loop {
                let Some(branch) = branches.last_mut() else { return false };
                if let Some(tensor) = branch.placed.take() {
                    self.take_back(tensor, branch.changes);
                }
                if self.next.len() == branch.from {
                    branches.pop();
                    continue;
                }
                let Some(next) = self.next.pop() else { return false };
                if self.limit.looks == 0 || self.limit.branches == 0 {
                    return false;
                }
                branch.placed = Some(next.2);
                if self.place(next) {
                    break next;
                }
            };
        }
        true
    }

    /// Adds the tensors that may come after one at this address. None if what has no place exceeds the size that is aimed at.
    fn branch(&mut self, (address, rank, _): Next) {
        let given = self.given;
        self.limit.branches = self.limit.branches.saturating_sub(1);
        self.floors.fill(i32::MAX / 2);
        let (mut lowest_end, mut looks) = (i32::MAX, 0);
        for (tensor, &sized) in given.sized.iter().enumerate() {
            if self.is_placed[tensor] {
                continue;
            }
            // A tensor that ends below the next one could move down to there.
            lowest_end = lowest_end.min(self.lowest[tensor] + sized.units);
            let lowest = self.lowest[tensor].max(address);
            for floor in &mut self.floors[sized.moments()] {
                *floor = lowest.min(*floor);
            }
            looks += sized.length() / AT_ONCE as u64 + 1;
        }
        self.limit.looks = self.limit.looks.saturating_sub(looks);
        let mut exceeds = false;
        for ((&floor, &left), blame) in self.floors.iter().zip(&self.left).zip(&mut self.blame) {
            if left > 0 && floor + left > self.top {
                exceeds = true;
                *blame += 1;
            }
        }
        if exceeds {
            return;
        }
        let from = self.next.len();
        for tensor in 0..given.sized.len() {
            let next = (self.lowest[tensor], self.ranks[tensor], tensor as u32);
            if !self.is_placed[tensor] && next.0 < lowest_end && (next.0, next.1) >= (address, rank) {
                self.next.push(next);
            }
        }
        self.next[from..].sort_unstable_by_key(|&next| Reverse(next));
    }

    /// Places a tensor. Returns false if what lives with it no longer fits.
    fn place(&mut self, (address, _, tensor): Next) -> bool {
        let given = self.given;
        let sized = given.sized[tensor as usize];
        let end = address + sized.units;
        self.is_placed[tensor as usize] = true;
        let mut most = 0;
        for left in &mut self.left[sized.moments()] {
            *left -= sized.units;
            most = most.max(*left);
        }
        if end + most > self.top {
            return false;
        }
        let beside = &given.beside[tensor as usize];
        self.limit.looks = self.limit.looks.saturating_sub(beside.len() as u64);
        for &other in beside {
            let lowest = &mut self.lowest[other as usize];
            if !self.is_placed[other as usize] && *lowest < end {
                self.changes.push((other, *lowest));
                *lowest = end;
            }
        }
        true
    }

    fn take_back(&mut self, tensor: u32, changes: usize) {
        let sized = self.given.sized[tensor as usize];
        self.is_placed[tensor as usize] = false;
        for left in &mut self.left[sized.moments()] {
            *left += sized.units;
        }
        for (other, lowest) in self.changes.drain(changes..).rev() {
            self.lowest[other as usize] = lowest;
        }
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
}
