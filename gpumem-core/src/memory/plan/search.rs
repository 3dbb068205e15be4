//! The native packer: two stacks, and a search if both of them miss the bound. Instructions cost next to nothing here.

use super::native_stack::{Stacks, Start, Turn};
use super::pack::{ALL_PATIENCE, ATTEMPTS, Attempt, LAST};
use super::repair::{Rule, repair};
use super::{LiveRange, Overflow, PackedSlice, bucket_sort, order, replay, turns};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

const fn start(turn: Turn, short: u32, long: u32, piles_large: bool, is_nested: bool) -> Start {
    Start { turn, short, long, piles_large, is_nested }
}

impl From<&Attempt> for Start {
    fn from(&Attempt { at_peak, short, long, .. }: &Attempt) -> Start {
        start(if at_peak { Turn::Peak } else { Turn::Most }, short, long, false, false)
    }
}

/// The number of [`ATTEMPTS`] that are made before the search, which is quicker than the others.
const FIRST: usize = 2;

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

/// The number of other tensors that [`stack`] looks at, for each tensor, before it gives up: first, and if no start ends otherwise. Many tensors
/// outside of a stack live long.
const PATIENCE: [usize; 2] = [1024, 4096];

/// The rounds of a start, and the most tensors that all of them place. In each round the tensor that ended highest comes first.
const ROUNDS: usize = 8;
const MOST_PLACED: usize = 16384;

/// Limits of what a [`repair`] looks at: first at a start, then there again.
const LOOKS: [usize; 2] = [1 << 17, 1 << 20];

/// The seeds of repairs that begin at a start again: those before the searches that take turns, and all. `RISES` are their [`Rule::halvings`] in turn.
const AGAIN: [usize; 2] = [4, 16];
const RISES: [u32; 3] = [4, 3, 2];

/// The looks at tensors of the searches that take turns: 0.2 seconds of one core in an optimised build, and less than a second in a macro.
const LAST_LOOKS: u64 = 180_000_000;

/// Packs `ranges` at run time. The offsets are those of [`pack`](super::pack()) if one of its first attempts reaches the lower bound. If they miss
/// it, more is tried than there, and the result is pushed down as far as possible.
pub fn pack_slice(ranges: &[LiveRange]) -> Result<PackedSlice, Overflow> {
    pack_slice_within(ranges, 0)
}

/// Packs tensors as [`pack_slice`] does, but stops at a packing of at most `enough` bytes.
///
/// # Errors
/// [`Overflow`] as there.
pub fn pack_slice_within(ranges: &[LiveRange], enough: u64) -> Result<PackedSlice, Overflow> {
    let packed = pack_to(ranges, Stacks::new(ranges)?, [enough, enough], LAST_LOOKS)?;
    match packed.size > enough && enough > packed.lower_bound {
        // Searches for a larger size may miss what those for the bound find.
        true => Ok(pack_to_bound(ranges, LAST_LOOKS)?.min_by_size(packed)),
        false => Ok(packed),
    }
}

/// Packs tensors with as many looks as given in the last searches, at the bound itself.
pub(super) fn pack_to_bound(ranges: &[LiveRange], last_looks: u64) -> Result<PackedSlice, Overflow> {
    pack_to(ranges, Stacks::new(ranges)?, [0, 0], last_looks)
}

/// Packs tensors into at most `room` bytes; `None` if what [`pack_slice`] packs has more. The packing is the quickest that fits, and need not be
/// the smallest.
///
/// # Errors
/// [`Overflow`] as there.
pub(in crate::memory) fn pack_slice_to_fit(ranges: &[LiveRange], room: u64) -> Result<Option<PackedSlice>, Overflow> {
    let stacks = Stacks::new(ranges)?;
    if stacks.peak.bytes > room {
        return Ok(None);
    }
    Ok(Some(pack_to(ranges, stacks, [room, 0], LAST_LOOKS)?).filter(|packed| packed.size <= room))
}

/// Packs tensors. If the first attempts have more than `enough` bytes, a packing of at most `goal` bytes is searched, or the lower bound if that
/// is more. Its last searches have `last_looks`.
fn pack_to(
    ranges: &[LiveRange],
    stacks: Stacks,
    [enough, goal]: [u64; 2],
    last_looks: u64,
) -> Result<PackedSlice, Overflow> {
    let (lower_bound, peak) = (stacks.peak.bytes, stacks.peak.operation);
    let (mut size, mut offsets) = first(&stacks);
    if size > lower_bound.max(enough) {
        size = search(&stacks.for_search(lower_bound.max(goal)), &mut offsets, size, last_looks);
    }
    if size > lower_bound
        && let Some(order) = order(ranges, &offsets)
    {
        size = replay(&order, ranges, &mut offsets);
    }
    Ok(PackedSlice { offsets, size, lower_bound, peak })
}

/// Returns the lower bound, and the size of the first attempts. What [`pack_slice`] packs lies between them.
///
/// # Errors
/// [`Overflow`] as there.
pub(in crate::memory) fn size_bounds(ranges: &[LiveRange]) -> Result<[u64; 2], Overflow> {
    let stacks = Stacks::new(ranges)?;
    Ok([stacks.peak.bytes, first(&stacks).0])
}

/// Returns the packing of the first attempts, with its size.
fn first(stacks: &Stacks) -> (u64, Vec<u64>) {
    let mut trial = vec![0; stacks.spans.len()];
    let mut best = (u64::MAX, trial.clone());
    for attempt in &ATTEMPTS[..FIRST] {
        match stacks.pack(&attempt.into(), &stacks.by_size, PATIENCE[0], &mut trial) {
            Some((size, _)) if size < best.0 => best = (size, trial.clone()),
            _ => {}
        }
        if best.0 <= stacks.top {
            return best;
        }
    }
    // Only a packing can be improved, so there has to be one.
    if best.0 == u64::MAX
        && let Some((size, _)) = stacks.pack(&(&LAST).into(), &stacks.by_size, ALL_PATIENCE, &mut trial)
    {
        best = (size, trial);
    }
    best
}

/// Improves a packing of this size, if it can, and returns the new size.
fn search(stacks: &Stacks, offsets: &mut [u64], size: u64, last_looks: u64) -> u64 {
    let top = stacks.top;
    let (mut best, mut trial) = (size, offsets.to_vec());
    if repair(&stacks.spans, &mut trial, top, LOOKS[0], Rule::FIRST) {
        offsets.copy_from_slice(&trial);
        return top;
    }
    let mut bases = Vec::new();
    for patience in PATIENCE {
        if bases.is_empty() && best > top {
            bases = pack_starts(stacks, patience, offsets, &mut best);
        }
    }
    if best <= top {
        return best;
    }
    if repair_again(stacks, &bases, 0..AGAIN[0], &mut trial) {
        offsets.copy_from_slice(&trial);
        return top;
    }
    let best = turns::improve(&stacks.spans, offsets, top, last_looks);
    if best > top && repair_again(stacks, &bases, AGAIN[0]..AGAIN[1], &mut trial) {
        offsets.copy_from_slice(&trial);
        return top;
    }
    best
}

/// Repairs what the starts have packed again, by each seed. Returns true if a repair, which is in `trial` then, reaches the bound.
fn repair_again(stacks: &Stacks, bases: &[Vec<u64>], seeds: Range<usize>, trial: &mut [u64]) -> bool {
    for seed in seeds {
        let Some(base) = bases.get(seed % bases.len().max(1)) else { return false };
        trial.copy_from_slice(base);
        let rule = Rule { seed: seed as u64 + 2, halvings: RISES[seed % RISES.len()] };
        if repair(&stacks.spans, trial, stacks.top, LOOKS[1], rule) {
            return true;
        }
    }
    false
}

/// Returns what each start packs in its first round, until the bound is reached. Keeps the best packing of all in `offsets`, and its size in
/// `best`.
fn pack_starts(stacks: &Stacks, patience: usize, offsets: &mut [u64], best: &mut u64) -> Vec<Vec<u64>> {
    let rounds = (MOST_PLACED / offsets.len().max(1)).clamp(1, ROUNDS);
    let (mut bases, mut trial) = (Vec::new(), offsets.to_vec());
    for start in &STARTS {
        let mut by_size = stacks.by_size.clone();
        for round in 0..rounds {
            let Some((size, highest)) = stacks.pack(start, &by_size, patience, &mut trial) else { break };
            if size < *best {
                *best = size;
                offsets.copy_from_slice(&trial);
            }
            bucket_sort::to_front(&mut by_size, highest);
            if round == 0 && *best > stacks.top {
                bases.push(trial.clone());
                if repair(&stacks.spans, &mut trial, stacks.top, LOOKS[0], Rule::FIRST) {
                    *best = stacks.top;
                    offsets.copy_from_slice(&trial);
                }
            }
            if *best <= stacks.top {
                return bases;
            }
        }
    }
    bases
}

#[cfg(test)]
mod tests {
    use super::super::{ALIGNMENT, verify_slice};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// An alternative that fits is one that the user's build packs, too.
        #[test]
        fn what_is_packed_to_fit_is_what_can_be_packed(
            tensors in prop::collection::vec((1u64..9, 0u32..20, 0u32..10), 1..40),
            share in 0u64..12,
        ) {
            let range = |(bytes, first, more)| LiveRange { bytes: bytes * ALIGNMENT, first, last: first + more };
            let ranges: Vec<LiveRange> = tensors.into_iter().map(range).collect();
            let least = pack_slice(&ranges).unwrap().size;
            for room in [least - 1, least, least + ALIGNMENT, least * share / 8] {
                let packed = pack_slice_to_fit(&ranges, room).unwrap();
                prop_assert_eq!(packed.is_some(), least <= room);
                prop_assert!(least > room || pack_slice_within(&ranges, room).unwrap().size <= room);
                if let Some(PackedSlice { offsets, size, .. }) = packed {
                    prop_assert!(size <= room && verify_slice(&ranges, &offsets, size, ALIGNMENT, &[]));
                }
            }
        }
    }
}
