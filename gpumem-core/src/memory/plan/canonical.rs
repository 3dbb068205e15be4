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
use super::bucket_sort::sorted;
use alloc::vec;
use alloc::vec::Vec;

/// The most units in which a size is counted, so that no sum of two overflows.
const MOST_UNITS: u64 = 1 << 29;

/// The most moments of all tensors in sum: 128 MiB of numbers.
const MOST_LISTED: u64 = 1 << 25;

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
    /// The tensors that live at each moment, the shortest first: those of a moment begin at its number in `lives_from`.
    lives: Vec<u32>,
    lives_from: Vec<u32>,
    /// The looks in the time that it takes to rank all tensors.
    preparation: u64,
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

/// The address of a tensor that has its place, above all others.
const PLACED: i32 = i32::MAX;

/// A point of the search, at which tensors have no place yet.
struct Branch {
    /// The number of candidates of all points before.
    from: usize,
    /// The tensor that is tried.
    placed: Option<u32>,
    /// The number of changes before that tensor was placed.
    changes: usize,
}

/// The state of a search.
struct Backtracking<'a> {
    given: &'a Canonical,
    ranks: &'a [u32],
    /// The tensors in the order of their ranks.
    order: &'a [u32],
    top: i32,
    /// The lowest address that is left to each tensor, or [`PLACED`].
    lowest: Vec<i32>,
    /// The addresses of tensors that have a place.
    addresses: Vec<i32>,
    /// The tensors without a place, in any order, and where each tensor is or was among them.
    without: Vec<u32>,
    places: Vec<u32>,
    /// Units without a place at each moment.
    left: Vec<i32>,
    /// For each moment a tensor that was found to begin low enough.
    witnesses: Vec<u32>,
    /// The orders of candidates of all points.
    next: Vec<u64>,
    /// Tensors, and earlier values of `lowest`.
    changes: Vec<(u32, i32)>,
    blame: Vec<u64>,
    limit: Limit,
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

/// Returns the tensors that live at each moment, the shortest first, and where those of each moment begin.
fn by_moment(sized: &[Sized], moments: usize) -> (Vec<u32>, Vec<u32>) {
    let mut from = vec![0u32; moments + 1];
    for tensor in sized {
        for from in &mut from[tensor.moments()] {
            *from += 1;
        }
    }
    let mut all = 0;
    for from in &mut from {
        (*from, all) = (all, all + *from);
    }
    let mut by_length: Vec<u32> = (0..sized.len() as u32).collect();
    by_length.sort_by_key(|&at| sized[at as usize].length());
    let (mut lives, mut next) = (vec![0; all as usize], from.clone());
    for tensor in by_length {
        for next in &mut next[sized[tensor as usize].moments()] {
            lives[*next as usize] = tensor;
            *next += 1;
        }
    }
    (lives, from)
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
        let moments = spans.iter().map(|span| span.last as usize + 1).max().unwrap_or(0);
        let mut live = vec![0i32; moments];
        for tensor in &sized {
            for units in &mut live[tensor.moments()] {
                *units = units.checked_add(tensor.units)?;
            }
        }
        if sized.iter().map(|sized| sized.length()).sum::<u64>() > MOST_LISTED {
            return None;
        }
        let (lives, lives_from) = by_moment(&sized, moments);
        let preparation = sized.iter().map(|sized| sized.length() / 4 + 20).sum();
        Some(Canonical { sized, unit, preparation, lives, lives_from, live, blame: vec![0; moments], random: 1 })
    }

    /// Writes a packing of at most `top` bytes, by ranks without blame, and returns true if it finds one.
    pub(super) fn pack(&mut self, offsets: &mut [u64], top: u64, ranks: Ranks, limit: Limit, looks: &mut u64) -> bool {
        let keys: Vec<[u64; 2]> = (0..self.sized.len()).map(|at| self.key(at, ranks)).collect();
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
        let mut keys: Vec<u64> = (0..self.sized.len()).map(|at| self.key(at, ranks)[0]).collect();
        // The largest key takes all bits that the factors below leave.
        let shift = keys.iter().copied().max().unwrap_or(0).leading_zeros();
        for (key, tensor) in keys.iter_mut().zip(&self.sized) {
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
        let tensor = self.sized[at];
        let (units, length) = (tensor.units as u64, tensor.length());
        let area = units * length;
        match ranks {
            Ranks::Area => [area, length],
            Ranks::Length => [area * length.min(1 << 11), length],
            Ranks::Width => [(units << 16).isqrt() * length, units],
            Ranks::LengthFirst => [length, units],
            Ranks::Crowd => [most_in(&self.live, &tensor) as u64, area],
            Ranks::CrowdedLength => [most_in(&self.live, &tensor) as u64, length],
        }
    }

    /// Searches with tensors in this order. Takes its looks from `looks`, and leaves `offsets` if it finds nothing.
    fn search(&mut self, offsets: &mut [u64], top: u64, order: &[u32], limit: Limit, looks: &mut u64) -> bool {
        let count = self.sized.len();
        let mut ranks = vec![0; count];
        for (rank, &tensor) in order.iter().enumerate() {
            ranks[tensor as usize] = rank as u32;
        }
        *looks = looks.saturating_sub(self.preparation);
        let limit = Limit { looks: limit.looks.min(*looks), ..limit };
        let mut search = Backtracking {
            given: self,
            ranks: &ranks,
            order,
            top: i32::try_from(top / self.unit).unwrap_or(i32::MAX / 2),
            lowest: vec![0; count],
            addresses: vec![0; count],
            without: (0..count as u32).collect(),
            places: (0..count as u32).collect(),
            left: self.live.clone(),
            witnesses: self.lives_from.iter().map(|&at| self.lives.get(at as usize).copied().unwrap_or(0)).collect(),
            next: Vec::new(),
            changes: Vec::new(),
            blame: vec![0; self.live.len()],
            limit,
        };
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

/// Loops here are written out: a macro runs this unoptimised, where iterators take several times as long.
impl Backtracking<'_> {
    /// Places all tensors, and returns true if it can.
    fn finds(&mut self) -> bool {
        let mut branches: Vec<Branch> = Vec::new();
        let mut last = 0;
        while branches.len() < self.given.sized.len() {
            if !self.exceeds(address(last)) {
                branches.push(Branch { from: self.next.len(), placed: None, changes: 0 });
                self.branch(last);
            }
            // The last branch that goes on.
            last = loop {
                let Some(branch) = branches.last_mut() else {
                    return false;
                };
                if let Some(tensor) = branch.placed.take() {
                    self.take_back(tensor, branch.changes);
                }
                if self.next.len() == branch.from {
                    branches.pop();
                    continue;
                }
                let next = self.least(branch.from);
                if self.limit.looks == 0 || self.limit.branches == 0 {
                    return false;
                }
                let tensor = self.order[next as u32 as usize];
                branch.placed = Some(tensor);
                branch.changes = self.changes.len();
                if self.place(tensor, address(next)) {
                    break next;
                }
            };
        }
        true
    }

    /// Returns true if at some moment too much is left for what remains above this address.
    fn exceeds(&mut self, address: i32) -> bool {
        let given = self.given;
        self.limit.branches = self.limit.branches.saturating_sub(1);
        let mut looks = self.left.len() + 3 * self.without.len();
        let (left, lowest, lives, lives_from) = (&*self.left, &*self.lowest, &*given.lives, &*given.lives_from);
        let (witnesses, blame) = (&mut *self.witnesses, &mut *self.blame);
        let (mut exceeds, mut moment) = (false, 0);
        while moment < left.len() {
            // What begins here or below leaves room for the rest above it.
            let highest = self.top - left[moment];
            if left[moment] > 0 && (highest < address || lowest[witnesses[moment] as usize] > highest) {
                let from = lives_from[moment] as usize;
                let end = if highest < address { from } else { lives_from[moment + 1] as usize };
                let mut at = from;
                while at < end && lowest[lives[at] as usize] > highest {
                    at += 1;
                }
                looks += at - from + 1;
                if at < end {
                    witnesses[moment] = lives[at];
                } else {
                    exceeds = true;
                    blame[moment] += 1;
                }
            }
            moment += 1;
        }
        self.limit.looks = self.limit.looks.saturating_sub(looks as u64);
        exceeds
    }

    /// Returns the lowest end of a tensor without a place. What begins above it leaves a gap, into which that tensor could move down.
    fn lowest_end(&self) -> i32 {
        let (without, lowest, sized) = (&*self.without, &*self.lowest, &*self.given.sized);
        let (mut lowest_end, mut at) = (i32::MAX, 0);
        while at < without.len() {
            let tensor = without[at] as usize;
            let end = lowest[tensor] + sized[tensor].units;
            if end < lowest_end {
                lowest_end = end;
            }
            at += 1;
        }
        lowest_end
    }

    /// Adds the tensors that may come after one of this order to the candidates.
    fn branch(&mut self, last: u64) {
        let lowest_end = self.lowest_end();
        let (without, lowest, ranks) = (&*self.without, &*self.lowest, self.ranks);
        let mut at = 0;
        while at < without.len() {
            let tensor = without[at] as usize;
            if lowest[tensor] < lowest_end {
                let order = (lowest[tensor] as u64) << 32 | ranks[tensor] as u64;
                if order >= last {
                    self.next.push(order);
                }
            }
            at += 1;
        }
    }

    /// Removes the first candidate from those of a point, which begin at `from`. Few of them are tried: to sort them all takes longer.
    fn least(&mut self, from: usize) -> u64 {
        let next = &mut *self.next;
        let (mut least, mut at) = (from, from + 1);
        while at < next.len() {
            if next[at] < next[least] {
                least = at;
            }
            at += 1;
        }
        self.limit.looks = self.limit.looks.saturating_sub((at - from) as u64);
        let order = next[least];
        next[least] = next[at - 1];
        self.next.pop();
        order
    }

    /// Places a tensor. Returns false if what lives with it no longer fits.
    fn place(&mut self, tensor: u32, address: i32) -> bool {
        let own = self.given.sized[tensor as usize];
        let end = address + own.units;
        self.lowest[tensor as usize] = PLACED;
        self.addresses[tensor as usize] = address;
        self.leave(tensor);
        let left = &mut *self.left;
        let (mut most, mut moment) = (0, own.first as usize);
        while moment <= own.last as usize {
            left[moment] -= own.units;
            if left[moment] > most {
                most = left[moment];
            }
            moment += 1;
        }
        if end + most > self.top {
            return false;
        }
        let (without, lowest, sized) = (&*self.without, &mut *self.lowest, &*self.given.sized);
        let mut at = 0;
        while at < without.len() {
            let other = without[at] as usize;
            if lowest[other] < end && sized[other].first <= own.last && own.first <= sized[other].last {
                self.changes.push((other as u32, lowest[other]));
                lowest[other] = end;
            }
            at += 1;
        }
        true
    }

    fn take_back(&mut self, tensor: u32, changes: usize) {
        let own = self.given.sized[tensor as usize];
        self.lowest[tensor as usize] = self.addresses[tensor as usize];
        self.come_back(tensor);
        let left = &mut *self.left;
        let mut moment = own.first as usize;
        while moment <= own.last as usize {
            left[moment] += own.units;
            moment += 1;
        }
        while self.changes.len() > changes {
            let Some((other, lowest)) = self.changes.pop() else {
                return;
            };
            self.lowest[other as usize] = lowest;
        }
    }

    /// Removes a tensor from those without a place. The last of them takes its position.
    fn leave(&mut self, tensor: u32) {
        let place = self.places[tensor as usize];
        let Some(last) = self.without.pop() else {
            return;
        };
        if last != tensor {
            self.without[place as usize] = last;
            self.places[last as usize] = place;
        }
    }

    /// Undoes the last [`Backtracking::leave`].
    fn come_back(&mut self, tensor: u32) {
        let place = self.places[tensor as usize];
        let end = self.without.len() as u32;
        if place == end {
            self.without.push(tensor);
            return;
        }
        let last = self.without[place as usize];
        self.without.push(last);
        self.places[last as usize] = end;
        self.without[place as usize] = tensor;
    }
}

/// Returns the address in an order.
fn address(order: u64) -> i32 {
    (order >> 32) as i32
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
