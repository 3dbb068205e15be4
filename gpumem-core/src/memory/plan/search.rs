//! The search beyond the portfolio, if that misses the bound. It is native only, where instructions cost next to nothing.

use super::bound::{self, Peak};
use super::repair::{Rule, repair};
use super::stack::{self, Orders, Stacked};
use super::{LiveRange, NO_SPAN, PATIENCE, Span, bucket_sort, sink};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The time at which tensors are stacked.
#[derive(Clone, Copy)]
enum Turn {
    /// The time at which most tensors are alive.
    Most,
    /// The time at which most bytes are alive.
    Peak,
    /// The last time before the peak at which nearly as many bytes are alive, and fewer directly after it. A tensor that begins between the two
    /// is then no part of the stack: it may be where something else was at the first of them.
    Before,
}

/// A packing by [`stack`] from which a repair begins.
struct Start {
    turn: Turn,
    short: u32,
    long: u32,
    /// True if all gradients that wait are piled; otherwise only small ones are.
    piles_large: bool,
    /// True if the tensor that lives longest is at the top of the pile; otherwise the first to begin is.
    is_nested: bool,
}

const fn start(turn: Turn, short: u32, long: u32, piles_large: bool, is_nested: bool) -> Start {
    Start { turn, short, long, piles_large, is_nested }
}

/// The starts, those that are of most use on the networks of gpumem-zoo first.
const STARTS: [Start; 15] = [
    start(Turn::Peak, 4, 16, true, false),
    start(Turn::Most, 4, 32, true, false),
    start(Turn::Peak, 4, 16, true, true),
    start(Turn::Peak, 20, 4, true, true),
    start(Turn::Peak, 2, 4, true, true),
    start(Turn::Peak, 24, 32, true, true),
    start(Turn::Most, 24, 32, false, true),
    start(Turn::Peak, 16, u32::MAX, false, false),
    start(Turn::Peak, 16, 1, false, false),
    start(Turn::Most, 16, 32, true, false),
    start(Turn::Most, 24, 16, true, false),
    start(Turn::Peak, 28, u32::MAX, false, false),
    start(Turn::Most, 8, u32::MAX, false, false),
    start(Turn::Peak, 4, 1, true, false),
    start(Turn::Before, 4, 16, true, false),
];

/// The divisor of the bound that gives the most bytes that may lack at [`Turn::Before`].
const NEARLY: u64 = 200;

/// The rounds of a start, and the most tensors that all of them place. In each round the tensor that ended highest comes first.
const ROUNDS: usize = 8;
const MOST_PLACED: usize = 16384;

/// The patience if no start ends otherwise, see [`PATIENCE`]: many tensors outside of a stack live long.
const MOST_PATIENCE: usize = 4096;

/// Limits of what a [`repair`] looks at: first at a start, then there again or at the best packing.
const LOOKS: [usize; 2] = [1 << 17, 1 << 20];

/// Repairs that begin at a start again, with other rules: first some that settle, then as many that do not. `RISES` are their [`Rule::halvings`].
const AGAIN: usize = 40;
const RISES: [[u32; 3]; 2] = [[1, 0, 2], [4, 3, 2]];

/// The number of sizes between the bound and the best packing that are tried if the bound is not reached.
const HALVINGS: usize = 6;

/// Improves a packing of this size, if it can, and returns the new size.
pub(super) fn search(ranges: &[LiveRange], offsets: &mut [u64], size: u64, peak: Peak) -> u64 {
    let stacks = Stacks::new(ranges, peak);
    let (mut best, mut trial) = (size, offsets.to_vec());
    if repair(&stacks.spans, &mut trial, peak.bytes, LOOKS[0], Rule::FIRST) {
        offsets.copy_from_slice(&trial);
        return peak.bytes;
    }
    let mut bases = Vec::new();
    for patience in [PATIENCE[1], MOST_PATIENCE] {
        if bases.is_empty() && best > peak.bytes {
            bases = stacks.bases(patience, offsets, &mut best);
        }
    }
    if best <= peak.bytes {
        return best;
    }
    for (settles, rises) in [(true, RISES[0]), (false, RISES[1])] {
        for (seed, base) in bases.iter().cycle().take(AGAIN).enumerate() {
            trial.copy_from_slice(base);
            let rule = Rule { seed: seed as u64 + 2, halvings: rises[seed % rises.len()], settles };
            if repair(&stacks.spans, &mut trial, peak.bytes, LOOKS[1], rule) {
                offsets.copy_from_slice(&trial);
                return peak.bytes;
            }
        }
    }
    // The bound itself first, then sizes halfway to it.
    let (mut low, mut top) = (peak.bytes, peak.bytes);
    for _ in 0..HALVINGS {
        trial.copy_from_slice(offsets);
        if repair(&stacks.spans, &mut trial, top, LOOKS[1], Rule::FIRST) {
            offsets.copy_from_slice(&trial);
            let highest = sink::highest(&stacks.spans, &trial);
            best = trial[highest] + stacks.spans[highest].bytes;
        } else {
            low = top;
        }
        if best == peak.bytes {
            break;
        }
        if best <= low {
            // A search for a larger size found what a search for that size did not.
            low = peak.bytes;
        }
        top = low + (best - low) / 2;
    }
    best
}

/// The data that all packings by [`stack`] share.
struct Stacks {
    spans: Vec<Span>,
    by_first: Vec<u32>,
    by_last: Vec<u32>,
    by_size: Vec<u32>,
    nested: Vec<u32>,
    axis: bound::Axis,
    /// The time of [`Turn::Before`]; `None` if there is none.
    before: Option<u32>,
    top: u64,
}

impl Stacks {
    fn new(ranges: &[LiveRange], peak: Peak) -> Stacks {
        let count = ranges.len();
        let [mut by_first, mut by_last, mut by_size, mut head, mut next] =
            [const { Vec::new() }; 5].map(|mut words| {
                words.resize(count, 0);
                words
            });
        let mut keys = vec![0; count];
        bucket_sort::by_first(ranges, &mut by_first, &mut keys, &mut head, &mut next);
        bucket_sort::by_last(ranges, &mut by_last, &mut keys, &mut head, &mut next);
        bucket_sort::by_size(ranges, &mut by_size, &mut keys, &mut head, &mut next);
        let mut spans = vec![NO_SPAN; count];
        let axis = bound::compress(ranges, &by_first, &by_last, &peak, &mut spans);
        let mut nested = by_first.clone();
        nested.sort_by_key(|&tensor| Reverse(spans[tensor as usize].last));
        let before = before(&spans, &axis, peak.bytes);
        Stacks { spans, by_first, by_last, by_size, nested, axis, before, top: peak.bytes }
    }

    /// Returns what each start packs in its first round, until the bound is reached. Keeps the best packing of all in `offsets`, and its size in
    /// `best`.
    fn bases(&self, patience: usize, offsets: &mut [u64], best: &mut u64) -> Vec<Vec<u64>> {
        let rounds = (MOST_PLACED / offsets.len().max(1)).clamp(1, ROUNDS);
        let (mut bases, mut trial) = (Vec::new(), offsets.to_vec());
        for start in &STARTS {
            let mut by_size = self.by_size.clone();
            for round in 0..rounds {
                let Some((size, highest)) = self.pack(start, &by_size, patience, &mut trial) else { break };
                if size < *best {
                    *best = size;
                    offsets.copy_from_slice(&trial);
                }
                bucket_sort::to_front(&mut by_size, highest);
                if round == 0 && *best > self.top {
                    bases.push(trial.clone());
                    if repair(&self.spans, &mut trial, self.top, LOOKS[0], Rule::FIRST) {
                        *best = self.top;
                        offsets.copy_from_slice(&trial);
                    }
                }
                if *best <= self.top {
                    return bases;
                }
            }
        }
        bases
    }

    /// Packs by one start, and returns the size and the tensor that ended highest. `None` if the packer gives up, or there is no such turn.
    fn pack(&self, start: &Start, by_size: &[u32], patience: usize, offsets: &mut [u64]) -> Option<(u64, u32)> {
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
        let highest = sink::highest(&self.spans, offsets) as u32;
        Some((sink::sink(&self.spans, offsets, size, self.top), highest))
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
        let stacks = |ranges: &[LiveRange]| Stacks::new(ranges, Peak { bytes: 1000, operation: 4 });
        assert_eq!(stacks(&ranges).before, Some(1));
        let mut fewer = ranges;
        fewer[2].bytes = 4;
        assert_eq!(stacks(&fewer).before, None);
    }
}
