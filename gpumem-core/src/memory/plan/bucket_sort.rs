//! Orders of tensors, by bucket sort. Const evaluation pays for every comparison, and a merge sort by size took longer than packing did.

use super::LiveRange;
use alloc::vec;
use alloc::vec::Vec;

/// Fills `order` with the indices of `keys`, sorted by key, ascending; equal keys keep their order.
///
/// Digits in base `keys.len()`, the lowest first: one pass for times below the number of tensors, two or three for sizes.
/// `head` must be all 0 and is left so; `next` may hold anything. All are as long as `keys`.
const fn ascending(keys: &[u64], order: &mut [u32], head: &mut [u32], next: &mut [u32]) {
    let count = keys.len();
    let mut sorted = true;
    let mut largest = 0;
    let mut i = 0;
    while i < count {
        order[i] = i as u32;
        let key = keys[i];
        if key < largest {
            sorted = false;
        } else {
            largest = key;
        }
        i += 1;
    }
    if sorted {
        return;
    }
    // Not sorted, hence at least two keys: the base is at least 2 and what is left of the largest key shrinks.
    let base = count as u64;
    let mut divisor = 1u64;
    loop {
        // Chain from the back, so that each chain runs in the present order. Links are index + 1; 0 ends a chain.
        let mut i = count;
        while i > 0 {
            i -= 1;
            let id = order[i];
            let digit = (keys[id as usize] / divisor % base) as usize;
            next[id as usize] = head[digit];
            head[digit] = id + 1;
        }
        let mut filled = 0;
        let mut digit = 0;
        while filled < count {
            let mut link = head[digit];
            head[digit] = 0;
            digit += 1;
            while link != 0 {
                order[filled] = link - 1;
                filled += 1;
                link = next[link as usize - 1];
            }
        }
        largest /= base;
        if largest == 0 {
            return;
        }
        divisor *= base;
    }
}

/// Returns the indices of `keys` in the order of their keys; equal keys keep their order.
pub(crate) fn sorted(keys: impl Iterator<Item = u64>) -> Vec<u32> {
    let keys: Vec<u64> = keys.collect();
    let mut order = vec![0; keys.len()];
    ascending(&keys, &mut order, &mut vec![0; keys.len()], &mut vec![0; keys.len()]);
    order
}

/// Writes the order in which tensors begin. `keys`, `head` (all 0, left so) and `next` are scratch memory.
pub(super) const fn by_first(
    ranges: &[LiveRange],
    order: &mut [u32],
    keys: &mut [u64],
    head: &mut [u32],
    next: &mut [u32],
) {
    let mut i = 0;
    while i < ranges.len() {
        keys[i] = ranges[i].first as u64;
        i += 1;
    }
    ascending(keys, order, head, next);
}

/// Writes the order in which tensors end. `keys`, `head` (all 0, left so) and `next` are scratch memory.
pub(super) const fn by_last(
    ranges: &[LiveRange],
    order: &mut [u32],
    keys: &mut [u64],
    head: &mut [u32],
    next: &mut [u32],
) {
    let mut i = 0;
    while i < ranges.len() {
        let range = ranges[i];
        // A range that ends before it begins is alive at `first` only.
        keys[i] = if range.last < range.first { range.first } else { range.last } as u64;
        i += 1;
    }
    ascending(keys, order, head, next);
}

/// Writes the order from the largest tensor to the smallest. `keys`, `head` (all 0, left so) and `next` are scratch memory.
pub(super) const fn by_size(
    ranges: &[LiveRange],
    order: &mut [u32],
    keys: &mut [u64],
    head: &mut [u32],
    next: &mut [u32],
) {
    let mut largest = 0;
    let mut bits = 0;
    let mut i = 0;
    while i < ranges.len() {
        let bytes = ranges[i].bytes;
        bits |= bytes;
        if bytes > largest {
            largest = bytes;
        }
        i += 1;
    }
    // Sizes are multiples of the alignment at least: fewer digits.
    let unit = if bits == 0 { 0 } else { bits.trailing_zeros() };
    let mut i = 0;
    while i < ranges.len() {
        keys[i] = (largest - ranges[i].bytes) >> unit;
        i += 1;
    }
    ascending(keys, order, head, next);
}

/// Moves `id` to the front of an order.
pub(super) const fn to_front(order: &mut [u32], id: u32) {
    let mut held = id;
    let mut i = 0;
    while i < order.len() {
        let next = order[i];
        order[i] = held;
        if next == id {
            return;
        }
        held = next;
        i += 1;
    }
}
