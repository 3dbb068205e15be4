//! Packings by [`stack`] with any settings, natively.

use super::bound::{self, Peak};
use super::bucket_sort::sorted;
use super::sink::sink;
use super::stack::{self, Orders, Stacked};
use super::{LiveRange, NO_SPAN, Overflow, Span};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The time at which tensors are stacked.
#[derive(Clone, Copy)]
pub(super) enum Turn {
    /// The time at which most tensors are alive.
    Most,
    /// The time at which most bytes are alive.
    Peak,
    /// The last time before the peak at which nearly as many bytes are alive, and fewer directly after it. A tensor that begins between the two
    /// is then no part of the stack: it may be where something else was at the first of them.
    Before,
}

/// The settings of a packing by [`stack`].
pub(super) struct Start {
    pub(super) turn: Turn,
    pub(super) short: u32,
    pub(super) long: u32,
    /// True if all gradients that wait are piled; otherwise only small ones are.
    pub(super) piles_large: bool,
    /// True if the tensor that lives longest is at the top of the pile; otherwise the first to begin is.
    pub(super) is_nested: bool,
}

/// The divisor of the bound that gives the most bytes that may lack at [`Turn::Before`].
const NEARLY: u64 = 200;

/// The data that all packings of some tensors by [`stack`] share.
pub(super) struct Stacks {
    pub(super) spans: Vec<Span>,
    by_first: Vec<u32>,
    by_last: Vec<u32>,
    /// The tensors, the largest first.
    pub(super) by_size: Vec<u32>,
    /// The tensors, those that end last first.
    nested: Vec<u32>,
    axis: bound::Axis,
    /// The lower bound of all packings.
    pub(super) peak: Peak,
    /// The size that is aimed at, in bytes. Piles hang from it.
    pub(super) top: u64,
    /// The time of [`Turn::Before`]; `None` if there is none.
    before: Option<u32>,
}

impl Stacks {
    /// Prepares packings that aim at the lower bound, by starts that are neither nested nor before the peak.
    pub(super) fn new(ranges: &[LiveRange]) -> Result<Stacks, Overflow> {
        bound::check_sum(ranges)?;
        let largest = ranges.iter().map(|range| range.bytes).max().unwrap_or(0);
        let by_first = sorted(ranges.iter().map(|range| range.first.into()));
        let by_last = sorted(ranges.iter().map(|range| range.last.max(range.first).into()));
        let by_size = sorted(ranges.iter().map(|range| largest - range.bytes));
        let peak = bound::peak(ranges, &by_first, &by_last)?;
        let mut spans = vec![NO_SPAN; ranges.len()];
        let axis = bound::compress(ranges, &by_first, &by_last, &peak, &mut spans);
        let (nested, top, before) = (Vec::new(), peak.bytes, None);
        Ok(Stacks { spans, by_first, by_last, by_size, nested, axis, peak, top, before })
    }

    /// Returns these tensors for packings of `top` bytes, with what all starts need.
    pub(super) fn for_search(self, top: u64) -> Stacks {
        let mut nested = self.by_first.clone();
        nested.sort_by_key(|&tensor| Reverse(self.spans[tensor as usize].last));
        Stacks { nested, before: before(&self.spans, &self.axis, top), top, ..self }
    }

    /// Packs by one start, and returns the size and the tensor that ended highest. `None` if the packer gives up, or there is no such turn.
    pub(super) fn pack(
        &self,
        start: &Start,
        by_size: &[u32],
        patience: usize,
        offsets: &mut [u64],
    ) -> Option<(u64, u32)> {
        let count = self.spans.len();
        let orders = Orders {
            by_first: &self.by_first,
            by_last: &self.by_last,
            by_size,
            nested: start.is_nested.then_some(&self.nested),
        };
        let stacked = Stacked {
            turn: match start.turn {
                Turn::Most => self.axis.turn,
                Turn::Peak => self.axis.peak,
                Turn::Before => self.before?,
            },
            short: start.short,
            long: start.long,
            small: if start.piles_large { self.top } else { self.top / stack::SMALL },
            top: self.top,
            patience,
        };
        let scratch = stack::Scratch {
            begins: &mut vec![0; count],
            next: &mut vec![0; count],
            lives: &mut vec![0; count],
            linked: &mut vec![0; count * stack::LINKS],
            links: &mut vec![0; count * stack::LINKS],
            heights: &mut vec![0; count],
            ceilings: &mut vec![0; count],
            starts: &mut vec![0; count],
            ends: &mut vec![0; count],
        };
        let size = stack::pack(&self.spans, orders, self.axis.moments, stacked, offsets, scratch)?;
        let highest = stack::highest(&self.spans, offsets) as u32;
        Some((sink(&self.spans, offsets, size, self.top), highest))
    }
}

/// Returns the time of [`Turn::Before`]; `None` if there is none.
fn before(spans: &[Span], axis: &bound::Axis, most: u64) -> Option<u32> {
    let mut live = vec![0u64; axis.moments + 1];
    for span in spans {
        // The sum of all bytes fits 64 bits, and bytes that end at one time were added at an earlier one.
        let (begins, ends) = (span.first as usize, span.last as usize + 1);
        live[begins] = live[begins].wrapping_add(span.bytes);
        live[ends] = live[ends].wrapping_sub(span.bytes);
    }
    for moment in 1..live.len() {
        live[moment] = live[moment].wrapping_add(live[moment - 1]);
    }
    let is_near = |&moment: &usize| live[moment + 1] < live[moment] && most - live[moment] <= most / NEARLY;
    (0..axis.peak as usize).rev().find(is_near).map(|moment| moment as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_before_the_peak_needs_nearly_as_many_bytes() {
        let range = |bytes, first, last| LiveRange { bytes, first, last };
        // 990, 995, 990 and 1000 of the thousand bytes at the peak.
        let ranges = [range(900, 0, 9), range(90, 0, 2), range(5, 1, 1), range(100, 4, 4), range(90, 3, 3)];
        let before = |ranges: &[LiveRange]| Stacks::new(ranges).unwrap().for_search(1000).before;
        assert_eq!(before(&ranges), Some(1));
        let mut fewer = ranges;
        fewer[2].bytes = 4;
        assert_eq!(before(&fewer), None);
    }
}
