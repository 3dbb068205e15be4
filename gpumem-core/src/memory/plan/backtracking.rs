//! One search of [`canonical`](super::canonical), for tensors in one order.

use alloc::vec;
use alloc::vec::Vec;

/// The most moments of all tensors in sum: 128 MiB of numbers.
const MOST_LISTED: u64 = 1 << 25;

/// A tensor, with its size in units.
#[derive(Clone, Copy)]
pub(super) struct Sized {
    pub(super) units: i32,
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Sized {
    pub(super) fn moments(self) -> core::ops::RangeInclusive<usize> {
        self.first as usize..=self.last as usize
    }

    pub(super) fn length(self) -> u64 {
        u64::from(self.last - self.first + 1)
    }
}

/// Tensors, and what searches among them need.
pub(super) struct Tensors {
    pub(super) sized: Vec<Sized>,
    /// The units alive at each moment.
    pub(super) live: Vec<i32>,
    /// The tensors that live at each moment, the shortest first: those of a moment begin at its number in `lives_from`.
    lives: Vec<u32>,
    lives_from: Vec<u32>,
}

impl Tensors {
    /// Lists tensors by moment. `None` if there are too many units at a moment, or too many moments.
    pub(super) fn new(sized: Vec<Sized>) -> Option<Tensors> {
        if sized.iter().map(|sized| sized.length()).sum::<u64>() > MOST_LISTED {
            return None;
        }
        let moments = sized.iter().map(|sized| sized.last as usize + 1).max().unwrap_or(0);
        let mut live = vec![0i32; moments];
        for tensor in &sized {
            for units in &mut live[tensor.moments()] {
                *units = units.checked_add(tensor.units)?;
            }
        }
        let (lives, lives_from) = by_moment(&sized, moments);
        Some(Tensors { sized, live, lives, lives_from })
    }
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
pub(super) struct Backtracking<'a> {
    given: &'a Tensors,
    ranks: &'a [u32],
    /// The tensors in the order of their ranks.
    order: &'a [u32],
    top: i32,
    /// The lowest address that is left to each tensor, or [`PLACED`].
    lowest: Vec<i32>,
    /// The addresses of tensors that have a place.
    pub(super) addresses: Vec<i32>,
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
    /// The number of branches that ended for each moment.
    pub(super) blame: Vec<u64>,
    /// The limit, less what was looked at.
    pub(super) limit: Limit,
}

/// Loops here are written out: a macro runs this unoptimised, where iterators take several times as long.
impl<'a> Backtracking<'a> {
    /// Begins a search for packings of at most `top` units.
    pub(super) fn new(
        given: &'a Tensors,
        ranks: &'a [u32],
        order: &'a [u32],
        top: i32,
        limit: Limit,
    ) -> Backtracking<'a> {
        let count = given.sized.len();
        let first = |&from: &u32| given.lives.get(from as usize).copied().unwrap_or(0);
        Backtracking {
            given,
            ranks,
            order,
            top,
            lowest: vec![0; count],
            addresses: vec![0; count],
            without: (0..count as u32).collect(),
            places: (0..count as u32).collect(),
            left: given.live.clone(),
            witnesses: given.lives_from.iter().map(first).collect(),
            next: Vec::new(),
            changes: Vec::new(),
            blame: vec![0; given.live.len()],
            limit,
        }
    }

    /// Places all tensors, and returns true if it can.
    pub(super) fn finds(&mut self) -> bool {
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
            // A tensor that begins at this address or lower leaves room above it for all the others.
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
