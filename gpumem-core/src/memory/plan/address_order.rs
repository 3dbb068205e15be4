//! Packings that the macro carries into const evaluation: as orders of addresses, so that they hold at any sizes.
//!
//! At every operation of the step, the live tensors have an order by address. A tensor that is directly above another at some operation must
//! start where that one ends, or above. A packing needs no more knowledge of live ranges than that. So the macro packs with all packers, and
//! const evaluation only places one tensor after the other, each at the highest end of those directly below it. That is valid whatever the sizes
//! are, and no larger than the macro's packing if the sizes are those that the macro packed.

use super::LiveRange;
use super::bucket_sort::sorted;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// The bits of a tensor's number in an entry.
const BITS: u32 = 21;
const MASK: u64 = (1 << BITS) - 1;

/// Returns the address order of a packing: entries `[tensor, below, below]` by address, each packed into one number. A tensor has as many entries
/// as it needs, one after the other; the largest number stands for no tensor. `None` if there are more tensors than numbers.
pub fn order(ranges: &[LiveRange], offsets: &[u64]) -> Option<Vec<u64>> {
    if ranges.len() as u64 >= MASK {
        return None;
    }
    let mut by_address: Vec<usize> = (0..ranges.len()).collect();
    // A tensor that is empty here may have bytes at other sizes, so that it comes first at its offset.
    by_address.sort_by_key(|&tensor| (offsets[tensor], ranges[tensor].bytes > 0));
    let mut ranks = vec![0u32; ranges.len()];
    for (rank, &tensor) in by_address.iter().enumerate() {
        ranks[tensor] = rank as u32;
    }
    let below = neighbours(ranges, &ranks);
    let mut entries = Vec::with_capacity(2 * ranges.len());
    for (rank, &tensor) in by_address.iter().enumerate() {
        let mut below = below[rank].iter().map(|&rank| by_address[rank as usize] as u64);
        loop {
            let (first, second) = (below.next().unwrap_or(MASK), below.next().unwrap_or(MASK));
            entries.push(tensor as u64 | first << BITS | second << (2 * BITS));
            if second == MASK || below.len() == 0 {
                break;
            }
        }
    }
    Some(entries)
}

/// Returns for each rank by address the ranks that are directly below it at some operation.
fn neighbours(ranges: &[LiveRange], ranks: &[u32]) -> Vec<Vec<u32>> {
    let last = |tensor: u32| ranges[tensor as usize].last.max(ranges[tensor as usize].first);
    let begins = sorted(ranges.iter().map(|range| u64::from(range.first)));
    let ends = sorted((0..ranges.len() as u32).map(|tensor| u64::from(last(tensor))));
    let mut below = vec![Vec::new(); ranges.len()];
    let mut meet = |low: Option<u32>, high: Option<u32>| {
        if let (Some(low), Some(high)) = (low, high)
            && !below[high as usize].contains(&low)
        {
            below[high as usize].push(low);
        }
    };
    let mut live = BTreeSet::new();
    let around = |live: &BTreeSet<u32>, rank: u32| {
        (live.range(..rank).next_back().copied(), live.range(rank + 1..).next().copied())
    };
    let mut ended = ends.into_iter().peekable();
    for tensor in begins {
        while let Some(old) = ended.next_if(|&old| last(old) < ranges[tensor as usize].first) {
            let rank = ranks[old as usize];
            live.remove(&rank);
            // The tensors on both sides of it are next to each other from here on.
            let (low, high) = around(&live, rank);
            meet(low, high);
        }
        let rank = ranks[tensor as usize];
        live.insert(rank);
        let (low, high) = around(&live, rank);
        meet(low, Some(rank));
        meet(Some(rank), high);
    }
    below
}

/// Places the tensors in the order of `entries`, and returns the size. The entries are those that [`order`] wrote for tensors of these live
/// ranges. All offsets are written. The sum of all bytes must fit 64 bits.
pub const fn replay(entries: &[u64], ranges: &[LiveRange], offsets: &mut [u64]) -> u64 {
    let mut size = 0;
    let mut previous = MASK;
    let mut i = 0;
    while i < entries.len() {
        let entry = entries[i];
        let (tensor, first, second) = (entry & MASK, entry >> BITS & MASK, entry >> (2 * BITS));
        let mut offset = if tensor == previous { offsets[tensor as usize] } else { 0 };
        if first != MASK {
            let end = offsets[first as usize] + ranges[first as usize].bytes;
            if end > offset {
                offset = end;
            }
            if second != MASK {
                let end = offsets[second as usize] + ranges[second as usize].bytes;
                if end > offset {
                    offset = end;
                }
            }
        }
        offsets[tensor as usize] = offset;
        let end = offset + ranges[tensor as usize].bytes;
        if end > size {
            size = end;
        }
        previous = tensor;
        i += 1;
    }
    size
}

/// Returns for each of `count` tensors the first one below it in `entries`, as index + 1, or 0. If one was there when the tensor began, it is
/// that one. [`verify_slice`](super::verify_slice) looks there first.
pub fn below(entries: &[u64], count: usize) -> Vec<u32> {
    let mut below = vec![0; count];
    let mut previous = MASK;
    for entry in entries {
        let (tensor, first) = (entry & MASK, entry >> BITS & MASK);
        if tensor != previous && first < count as u64 && tensor < count as u64 {
            below[tensor as usize] = first as u32 + 1;
        }
        previous = tensor;
    }
    below
}
