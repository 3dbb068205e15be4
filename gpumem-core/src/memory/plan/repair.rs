//! Repairs a packing that misses its bound. A tensor above the bound is moved to where it evicts the least, and so is what was evicted, until all
//! have a place or the search has looked long enough.
//!
//! A tensor that was evicted weighs more from then on, so that tensors which are hard to place stay where they are. A tensor weighs the square
//! root of its bytes times the operations at which it is alive, and after each eviction as much more as the search's rule says.

use super::Span;
use alloc::vec;
use alloc::vec::Vec;

/// The most tensors that are placed in one repair.
const MOST_STEPS: usize = 16384;

/// The most parts of the bound in which bytes are counted, so that no sum of weights overflows.
const PARTS: u64 = 1 << 24;

/// The fractional bits of a weight.
const FRACTION: u32 = 10;

/// A tensor that has a place.
#[derive(Clone, Copy)]
struct Placed {
    tensor: u32,
    first: u32,
    last: u32,
    start: u64,
    end: u64,
}

/// The parameters of a repair.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    /// The seed of the choice among places of equal cost.
    pub(super) seed: u64,
    /// The number of times that the mean weight is halved to give a tensor's extra weight after each eviction.
    pub(super) halvings: u32,
}

impl Rule {
    /// The rule that is tried first.
    pub(super) const FIRST: Rule = Rule { seed: 1, halvings: 4 };
}

/// Moves tensors until all end at `top` or below, and returns true if they do. Looks at `looks` other tensors at most. If it fails, `offsets` are
/// of no use.
///
/// Loops here are written out: a macro runs this unoptimised, where iterators take several times as long.
pub(super) fn repair(spans: &[Span], offsets: &mut [u64], top: u64, looks: usize, rule: Rule) -> bool {
    let mut search = Repair::new(spans, offsets, top, rule);
    let steps = (looks / spans.len().max(1)).min(MOST_STEPS);
    for _ in 0..steps {
        let Some(tensor) = search.hardest() else { break };
        if spans[tensor as usize].bytes > top {
            return false;
        }
        search.place(tensor);
    }
    for placed in &search.placed {
        offsets[placed.tensor as usize] = placed.start;
    }
    search.homeless.is_empty()
}

struct Repair<'a> {
    spans: &'a [Span],
    top: u64,
    /// The tensors that have a place, by address.
    placed: Vec<Placed>,
    homeless: Vec<u32>,
    /// The cost of evicting each tensor.
    costs: Vec<u64>,
    /// The rise of that cost with each eviction.
    rise: u64,
    /// Starts and ends of the tensors that live at the same time as one tensor, by address. Each comes with the cost of its tensor. The first
    /// `met` entries are in use.
    starts: Vec<(u64, u64)>,
    ends: Vec<(u64, u64)>,
    met: usize,
    /// The state of a linear congruential generator, which chooses among places of equal cost.
    random: u64,
}

impl<'a> Repair<'a> {
    fn new(spans: &'a [Span], offsets: &[u64], top: u64, rule: Rule) -> Repair<'a> {
        let unit = (top / PARTS).max(1);
        let area = |span: &Span| (span.bytes / unit + 1) * u64::from(span.last - span.first + 1);
        let costs: Vec<u64> = spans.iter().map(|span| area(span).isqrt() << FRACTION).collect();
        let mean = costs.iter().sum::<u64>() / (spans.len() as u64).max(1);
        let (mut placed, mut homeless) = (Vec::new(), Vec::new());
        for (tensor, &Span { bytes, first, last }) in spans.iter().enumerate().filter(|(_, span)| span.bytes > 0) {
            let (tensor, start) = (tensor as u32, offsets[tensor]);
            if start + bytes <= top {
                placed.push(Placed { tensor, first, last, start, end: start + bytes });
            } else {
                homeless.push(tensor);
            }
        }
        placed.sort_unstable_by_key(|placed| (placed.start, placed.tensor));
        let (starts, ends) = (vec![(0, 0); spans.len()], vec![(0, 0); spans.len()]);
        Repair {
            spans,
            top,
            placed,
            homeless,
            costs,
            rise: (mean >> rule.halvings).max(1),
            starts,
            ends,
            met: 0,
            random: rule.seed,
        }
    }

    /// Removes the tensor that costs the most from those without a place. `None` if all have a place.
    fn hardest(&mut self) -> Option<u32> {
        let most = (0..self.homeless.len()).max_by_key(|&at| self.costs[self.homeless[at] as usize])?;
        Some(self.homeless.swap_remove(most))
    }

    /// Places a tensor where it costs the least, and evicts what is there.
    fn place(&mut self, tensor: u32) {
        let own = self.spans[tensor as usize];
        self.meet(own);
        let (start, cost) = self.cheapest(own.bytes);
        let placed = Placed { tensor, first: own.first, last: own.last, start, end: start + own.bytes };
        if cost > 0 {
            self.throw_out(placed);
        }
        let at = self.placed.partition_point(|other| other.start <= start);
        self.placed.insert(at, placed);
    }

    /// Writes the starts and ends of the tensors that live at the same time as `own`.
    fn meet(&mut self, own: Span) {
        let (placed, costs) = (&*self.placed, &*self.costs);
        let (starts, ends) = (&mut *self.starts, &mut *self.ends);
        let (mut met, mut i) = (0, 0);
        while i < placed.len() {
            let other = placed[i];
            if other.first <= own.last && own.first <= other.last {
                let cost = costs[other.tensor as usize];
                starts[met] = (other.start, cost);
                ends[met] = (other.end, cost);
                met += 1;
            }
            i += 1;
        }
        self.met = met;
        // Ends are nearly sorted: those of tensors that live at one time are.
        let ends = &mut ends[..met];
        let mut i = 1;
        while i < ends.len() {
            let held = ends[i];
            let mut at = i;
            while at > 0 && ends[at - 1].0 > held.0 {
                ends[at] = ends[at - 1];
                at -= 1;
            }
            ends[at] = held;
            i += 1;
        }
    }

    /// Returns the place where the tensors in the way cost the least, and that cost. It is at an end of the memory, or directly above or below
    /// another tensor.
    fn cheapest(&mut self, bytes: u64) -> (u64, u64) {
        let (starts, ends) = (&self.starts[..self.met], &self.ends[..self.met]);
        let highest = self.top - bytes;
        let (mut best, mut least, mut ties) = (0, u64::MAX, 0);
        // In the way is a tensor that starts below the end of the place and does not end below its start.
        let (mut cost, mut begun, mut ended) = (0, 0, 0);
        // The next tensors that the place may be directly below, and directly above.
        let (mut below, mut above) = (0, 0);
        let mut place = 0;
        loop {
            while begun < starts.len() && starts[begun].0 < place + bytes {
                cost += starts[begun].1;
                begun += 1;
            }
            while ended < ends.len() && ends[ended].0 <= place {
                cost -= ends[ended].1;
                ended += 1;
            }
            if cost < least {
                (best, least, ties) = (place, cost, 1);
            } else if cost == least {
                ties += 1;
                self.random =
                    self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if (self.random >> 33).is_multiple_of(ties) {
                    best = place;
                }
            }
            if place == highest {
                return (best, least);
            }
            while below < starts.len() && starts[below].0 <= place + bytes {
                below += 1;
            }
            while above < ends.len() && ends[above].0 <= place {
                above += 1;
            }
            let mut next = highest;
            if below < starts.len() && starts[below].0 - bytes < next {
                next = starts[below].0 - bytes;
            }
            if above < ends.len() && ends[above].0 < next {
                next = ends[above].0;
            }
            place = next;
        }
    }

    /// Removes the tensors in the way of `own`.
    fn throw_out(&mut self, own: Placed) {
        let (rise, costs, homeless) = (self.rise, &mut *self.costs, &mut self.homeless);
        let placed = &mut *self.placed;
        let (mut stay, mut i) = (0, 0);
        while i < placed.len() {
            let other = placed[i];
            let meets = own.start < other.end && other.start < own.end;
            if meets && other.first <= own.last && own.first <= other.last {
                costs[other.tensor as usize] += rise;
                homeless.push(other.tensor);
            } else {
                placed[stay] = other;
                stay += 1;
            }
            i += 1;
        }
        self.placed.truncate(stay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_moves_over() {
        let span = |bytes, first, last| Span { bytes, first, last };
        // The two short ones leave gaps of 256 bytes above and below the second; the third needs both.
        let spans = [span(512, 0, 9), span(256, 2, 4), span(512, 3, 9)];
        let mut offsets = [0, 768, 1024];
        assert!(repair(&spans, &mut offsets, 1280, 100, Rule::FIRST));
        assert_eq!(offsets[0] + 512 + 512 + 256, 1280);
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            let apart = |a: usize, b: usize| offsets[a] + spans[a].bytes <= offsets[b];
            assert!(apart(one, other) || apart(other, one), "{offsets:?}");
        }
        assert!(!repair(&spans, &mut [0, 768, 1024], 1024, 100, Rule::FIRST), "more is alive than there is room for");
    }
}
