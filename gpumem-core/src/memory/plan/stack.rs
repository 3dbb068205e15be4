//! Stack and greedy: the packer made for training steps.
//!
//! Saved tensors are nested in time: the last tensor saved is the first one read. So the tensors alive at the turn are stacked, those needed
//! longest at the bottom, and the stack is dense on both sides of the turn. All other tensors live for a few operations only. They are placed
//! above the stack, the largest first, in the smallest gap between the tensors that live at the same time. Tensors around the turn that are
//! short-lived themselves are no part of the stack: packed densely, they would waste memory on one side of the turn.
//!
//! Gradients of parameters whose updates wait for others are many and small, and live through much of the backward pass. While they gather, the
//! stack shrinks: so they are piled from the other end, downwards from the lower bound.

use super::Span;

/// The links of each tensor in the lists of live transients.
pub(super) const LINKS: usize = 4;

/// The packer's scratch memory, as long as the spans unless a field says otherwise.
pub(super) struct Scratch<'a> {
    /// For each moment the last transient placed that begins there, as index + 1.
    pub(super) begins: &'a mut [u32],
    /// For each transient the one placed before it in the same list, as index + 1.
    pub(super) next: &'a mut [u32],
    /// For each moment the last link to a transient that lives on from the moment before, as index + 1.
    pub(super) lives: &'a mut [u32],
    /// The tensor of each link. [`LINKS`] times as long as the spans, like `links`.
    pub(super) linked: &'a mut [u32],
    /// For each link the one before it in the same list, as index + 1.
    pub(super) links: &'a mut [u32],
    /// The height of the stack at each moment.
    pub(super) heights: &'a mut [u64],
    /// The lower end of the pile at each moment.
    pub(super) ceilings: &'a mut [u64],
    /// Starts of the tensors that live at the same time as one transient, ascending.
    pub(super) starts: &'a mut [u64],
    /// Their ends.
    pub(super) ends: &'a mut [u64],
}

/// The divisor of the lower bound below which a tensor is small.
pub(super) const SMALL: u64 = 100;

/// The choice of tensors that are stacked or piled. Stacked are those alive at the moment `turn` that live for more than `short` moments. Piled,
/// downwards from the lower bound `top`, are those of fewer than `small` bytes that begin later and live for more than `long` moments.
#[derive(Clone, Copy)]
pub(super) struct Stacked {
    pub(super) turn: u32,
    pub(super) short: u32,
    pub(super) long: u32,
    pub(super) small: u64,
    pub(super) top: u64,
    /// The number of other tensors looked at and moved, for each tensor, before the packer gives up.
    pub(super) patience: usize,
}

impl Stacked {
    const fn contains(self, span: Span) -> bool {
        span.first <= self.turn && self.turn <= span.last && span.last - span.first >= self.short
    }

    const fn is_piled(self, span: Span) -> bool {
        span.first > self.turn && span.last - span.first >= self.long && span.bytes < self.small
    }
}

/// The orders of the tensors.
#[derive(Clone, Copy)]
pub(super) struct Orders<'a> {
    pub(super) by_first: &'a [u32],
    pub(super) by_last: &'a [u32],
    pub(super) by_size: &'a [u32],
    /// The order in which tensors are piled; `None` for the one in which they begin.
    pub(super) nested: Option<&'a [u32]>,
}

/// Writes offsets and returns the size of the packing. `None` if the search gets too long, or the pile meets the stack.
pub(super) const fn pack(
    spans: &[Span],
    orders: Orders<'_>,
    moments: usize,
    stacked: Stacked,
    offsets: &mut [u64],
    scratch: Scratch<'_>,
) -> Option<u64> {
    let Scratch { begins, next, lives, linked, links, heights, ceilings, starts, ends } = scratch;
    let Orders { by_last, by_size, .. } = orders;
    let mut moment = 0;
    while moment < moments {
        begins[moment] = 0;
        lives[moment] = 0;
        heights[moment] = 0;
        ceilings[moment] = u64::MAX;
        moment += 1;
    }
    let mut size = 0u64;
    let mut k = by_last.len();
    while k > 0 {
        k -= 1;
        let id = by_last[k] as usize;
        let span = spans[id];
        if stacked.contains(span) {
            offsets[id] = size;
            size += span.bytes;
            heights[span.first as usize] = size;
            heights[span.last as usize] = size;
        }
    }
    spread(heights, moments, stacked.turn as usize, size);
    if !pile(spans, orders, stacked, heights, ceilings, offsets) {
        return None;
    }
    if size < stacked.top && has_pile(ceilings, moments) {
        size = stacked.top;
    }

    let mut patience = stacked.patience.saturating_mul(spans.len());
    // Transients for which no links were left.
    let mut unlinked = 0u32;
    let mut used = 0;
    let mut k = 0;
    while k < by_size.len() {
        let id = by_size[k] as usize;
        let span = spans[id];
        k += 1;
        if span.bytes == 0 {
            offsets[id] = 0;
            continue;
        }
        if stacked.contains(span) || stacked.is_piled(span) {
            continue;
        }
        // The stack grows until the turn and shrinks from there: its height over a live range is that at one moment.
        let highest = if span.last < stacked.turn {
            span.last
        } else if span.first > stacked.turn {
            span.first
        } else {
            stacked.turn
        };
        let mut low = heights[highest as usize];

        let mut ceiling = u64::MAX;
        // Tensors that live at the same time: those that live on into the first moment, and those that begin during the live range. Gaps are
        // searched above the stack, so that tensors in lists of moments that end below it are left out.
        let mut found = 0;
        let mut looks = 0;
        let mut link = lives[span.first as usize];
        while link != 0 {
            let at = linked[link as usize - 1] as usize;
            let end = offsets[at] + spans[at].bytes;
            looks += 1;
            if end > low {
                looks += insert(starts, ends, found, offsets[at], end);
                found += 1;
            }
            link = links[link as usize - 1];
        }
        let mut moment = span.first as usize;
        let after = span.last as usize + 1;
        while moment < after {
            if ceilings[moment] < ceiling {
                ceiling = ceilings[moment];
            }
            let mut link = begins[moment];
            while link != 0 {
                let at = link as usize - 1;
                let end = offsets[at] + spans[at].bytes;
                looks += 1;
                if end > low {
                    looks += insert(starts, ends, found, offsets[at], end);
                    found += 1;
                }
                link = next[at];
            }
            moment += 1;
        }
        let mut link = unlinked;
        while link != 0 {
            let at = link as usize - 1;
            if spans[at].first <= span.last && span.first <= spans[at].last {
                let end = offsets[at] + spans[at].bytes;
                looks += insert(starts, ends, found, offsets[at], end);
                found += 1;
            }
            looks += 1;
            link = next[at];
        }
        if looks > patience {
            return None;
        }
        patience -= looks;

        // The smallest gap that holds the tensor, else the first place above all others.
        let mut tightest = u64::MAX;
        let mut offset = 0;
        let mut gap = 0;
        while gap < found {
            let end = if starts[gap] < ceiling { starts[gap] } else { ceiling };
            if end > low {
                let room = end - low;
                if room >= span.bytes && room < tightest {
                    tightest = room;
                    offset = low;
                }
            }
            if ends[gap] > low {
                low = ends[gap];
            }
            gap += 1;
        }
        if tightest == u64::MAX {
            // Above all others or, if that is in the pile, above the pile.
            offset = if span.bytes <= ceiling.saturating_sub(low) || low > stacked.top { low } else { stacked.top };
        }
        offsets[id] = offset;
        if offset + span.bytes > size {
            size = offset + span.bytes;
        }
        if used + (span.last - span.first) as usize > links.len() {
            next[id] = unlinked;
            unlinked = id as u32 + 1;
            continue;
        }
        next[id] = begins[span.first as usize];
        begins[span.first as usize] = id as u32 + 1;
        let mut moment = span.first as usize + 1;
        while moment < after {
            linked[used] = id as u32;
            links[used] = lives[moment];
            used += 1;
            lives[moment] = used as u32;
            moment += 1;
        }
    }
    Some(size)
}

/// Returns the tensor that ends highest, the first if there are several.
pub(super) const fn highest(spans: &[Span], offsets: &[u64]) -> usize {
    let (mut best, mut end) = (0, 0);
    let mut i = 0;
    while i < spans.len() {
        if offsets[i] + spans[i].bytes > end {
            best = i;
            end = offsets[i] + spans[i].bytes;
        }
        i += 1;
    }
    best
}

/// Fills the heights between the beginnings and ends of stacked tensors: running maxima towards the turn.
const fn spread(heights: &mut [u64], moments: usize, turn: usize, top: u64) {
    let mut height = 0;
    let mut moment = 0;
    while moment < turn {
        if heights[moment] < height {
            heights[moment] = height;
        } else {
            height = heights[moment];
        }
        moment += 1;
    }
    height = 0;
    moment = moments;
    while moment > turn + 1 {
        moment -= 1;
        if heights[moment] < height {
            heights[moment] = height;
        } else {
            height = heights[moment];
        }
    }
    if turn < moments {
        heights[turn] = top;
    }
}

/// Piles tensors downwards from the top, each below the lowest one that is alive. Returns true if the pile stays above the stack.
const fn pile(
    spans: &[Span],
    orders: Orders<'_>,
    stacked: Stacked,
    heights: &[u64],
    ceilings: &mut [u64],
    offsets: &mut [u64],
) -> bool {
    let order = match orders.nested {
        Some(nested) => nested,
        None => orders.by_first,
    };
    let mut k = 0;
    while k < order.len() {
        let id = order[k] as usize;
        let span = spans[id];
        k += 1;
        if !stacked.is_piled(span) || span.bytes == 0 {
            continue;
        }
        let (first, last) = (span.first as usize, span.last as usize);
        let mut lowest = if ceilings[first] < stacked.top { ceilings[first] } else { stacked.top };
        if orders.nested.is_some() {
            // Needed for nested orders only: in the order in which tensors begin, none of those before has a lower end later on.
            let mut moment = first;
            while moment <= last {
                if ceilings[moment] < lowest {
                    lowest = ceilings[moment];
                }
                moment += 1;
            }
        }
        if lowest < span.bytes || lowest - span.bytes < heights[first] {
            return false;
        }
        offsets[id] = lowest - span.bytes;
        let mut moment = first;
        while moment <= last {
            // A tensor that is piled later is lower, and may end sooner.
            ceilings[moment] = lowest - span.bytes;
            moment += 1;
        }
    }
    true
}

const fn has_pile(ceilings: &[u64], moments: usize) -> bool {
    let mut moment = 0;
    while moment < moments {
        if ceilings[moment] < u64::MAX {
            return true;
        }
        moment += 1;
    }
    false
}

/// Adds `start..end` to the first `count` entries, which are sorted by start. Returns the number of entries that it moved.
const fn insert(starts: &mut [u64], ends: &mut [u64], count: usize, start: u64, end: u64) -> usize {
    let mut at = count;
    while at > 0 && starts[at - 1] > start {
        starts[at] = starts[at - 1];
        ends[at] = ends[at - 1];
        at -= 1;
    }
    starts[at] = start;
    ends[at] = end;
    count - at
}
