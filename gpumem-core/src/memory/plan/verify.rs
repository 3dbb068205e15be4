//! A check of finished packings that shares no idea with the packers.
//!
//! A sweep over time keeps tensors in a list ordered by address. A tensor that begins must fit between the two nearest in that list that are
//! still alive, inside the arena, and aligned. Dead tensors between those two leave the list. Nothing is trusted: the sweep also checks that it
//! visits every tensor once, in the order of time.
//!
//! Const evaluation pays for every index, so that all that is known of a tensor is read at once. If an order says which tensor is directly below
//! another when that one begins, as for a packing that the macro carried, nothing is searched: [`follow`].

use super::{LiveRange, bucket_sort};

/// The number that stands for no tensor.
const NONE: u32 = u32::MAX;

/// A tensor that the sweep has seen.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    start: u64,
    end: u64,
    last: u32,
    /// The tensors next to it in the list.
    below: u32,
    above: u32,
    place: Place,
}

/// The progress of a tensor in the sweep.
#[derive(Clone, Copy)]
enum Place {
    Ahead,
    Listed,
    Passed,
}

/// A tensor before the sweep.
pub(super) const AHEAD: Seen = Seen { start: 0, end: 0, last: 0, below: NONE, above: NONE, place: Place::Ahead };

/// Words of scratch memory for each tensor.
pub(super) const WORDS: usize = 4;

/// Scratch memory, as long as there are tensors: `seen` must be [`AHEAD`], and the rest 0.
pub(super) struct Scratch<'a> {
    pub(super) seen: &'a mut [Seen],
    pub(super) words: &'a mut [[u32; WORDS]],
    pub(super) keys: &'a mut [u64],
}

/// True if `offsets` is a valid packing into `size` bytes. `below` has for each tensor the index + 1 of one that may be directly below it when it
/// begins, or 0; or it is empty. It says only where to look first.
pub(super) const fn verify(
    ranges: &[LiveRange],
    offsets: &[u64],
    size: u64,
    alignment: u64,
    below: &[u32],
    scratch: Scratch<'_>,
) -> bool {
    let count = ranges.len();
    let Scratch { seen, words, keys } = scratch;
    if offsets.len() != count || seen.len() != count || words.len() != count || keys.len() != count || alignment == 0 {
        return false;
    }
    let packing = (offsets, size, alignment);
    if below.len() == count && follow(ranges, packing, below, seen) {
        return true;
    }
    let (zeros, words) = words.as_flattened_mut().split_at_mut(count);
    let (by_first, words) = words.split_at_mut(count);
    let (head, next) = words.split_at_mut(count);
    let guesses = if below.len() == count { below } else { zeros };
    clear(seen);
    match sweep(ranges, packing, guesses, None, seen) {
        Ok(is_valid) => is_valid,
        Err(OutOfOrder) => {
            bucket_sort::by_first(ranges, by_first, keys, head, next);
            clear(seen);
            matches!(sweep(ranges, packing, guesses, Some(by_first), seen), Ok(true))
        }
    }
}

const fn clear(seen: &mut [Seen]) {
    let mut i = 0;
    while i < seen.len() {
        seen[i] = AHEAD;
        i += 1;
    }
}

/// True if tensors in the order of time are a valid packing, each directly above the one that `below` names. A tensor for which it names none is
/// at the bottom of the list. False means nothing: `below` may differ from the list, or tensors may come in another order.
///
/// A tensor that is alive has begun, and none that is alive leaves the list. So a tensor has a valid place if it is above a live one that ends
/// below it, and if the next live one above it begins above it.
const fn follow(
    ranges: &[LiveRange],
    (offsets, size, alignment): (&[u64], u64, u64),
    below: &[u32],
    seen: &mut [Seen],
) -> bool {
    let mut lowest = NONE;
    let mut now = 0;
    let mut id = 0;
    while id < ranges.len() {
        let (LiveRange { bytes, first, last }, start) = (ranges[id], offsets[id]);
        if first < now || start % alignment != 0 {
            return false;
        }
        now = first;
        let low = below[id] as usize;
        // A tensor that begins later was not below this one when it began.
        let is_lowest = low == 0 || low > id;
        let mut high = lowest;
        if is_lowest {
            lowest = id as u32;
        } else {
            let under = seen[low - 1];
            if under.last < now || under.end > start {
                return false;
            }
            high = under.above;
            seen[low - 1].above = id as u32;
        }
        let mut room = size;
        while high != NONE {
            let over = seen[high as usize];
            if over.last >= now {
                room = over.start;
                break;
            }
            high = over.above;
        }
        if start > room || bytes > room - start {
            return false;
        }
        // A tensor that ends before it begins is alive when it begins.
        let last = if last < now { now } else { last };
        seen[id] = Seen { start, end: start + bytes, last, below: NONE, above: high, place: Place::Listed };
        id += 1;
    }
    true
}

/// The error of a tensor that begins before the one that came before it.
struct OutOfOrder;

/// Visits the tensors in an order, or as they come, and returns true if the packing is valid. `guesses` are index + 1 of tensors: 0 is none.
const fn sweep(
    ranges: &[LiveRange],
    (offsets, size, alignment): (&[u64], u64, u64),
    guesses: &[u32],
    by_first: Option<&[u32]>,
    seen: &mut [Seen],
) -> Result<bool, OutOfOrder> {
    // `near` is where the last search ended. Tensors that follow one another in time are close in address, so that searching from there, or from
    // a guess, makes the sweep nearly linear.
    let (mut lowest, mut near) = (NONE, NONE);
    let mut now = 0;
    let mut begun = 0;
    while begun < ranges.len() {
        let id = match by_first {
            Some(order) => order[begun] as usize,
            None => begun,
        };
        let (LiveRange { bytes, first, last }, start) = (ranges[id], offsets[id]);
        begun += 1;
        if first < now {
            return Err(OutOfOrder);
        }
        if bytes > size || start > size - bytes || start % alignment != 0 || !matches!(seen[id].place, Place::Ahead) {
            return Ok(false);
        }
        now = first;
        // A tensor without bytes overlaps nothing.
        if bytes == 0 {
            seen[id].place = Place::Passed;
            continue;
        }
        let guess = guesses[id];
        if guess != 0 && guess as usize <= seen.len() && matches!(seen[guess as usize - 1].place, Place::Listed) {
            near = guess - 1;
        }
        // The last one that does not begin above it, and the one after that.
        let (mut low, mut high) = (near, lowest);
        while low != NONE {
            let other = seen[low as usize];
            if other.start <= start {
                high = other.above;
                break;
            }
            low = other.below;
        }
        while high != NONE {
            let other = seen[high as usize];
            if other.start > start {
                break;
            }
            (low, high) = (high, other.above);
        }
        // Of these, the nearest that are alive.
        while low != NONE {
            let other = seen[low as usize];
            if other.last >= now {
                if other.end > start {
                    return Ok(false);
                }
                seen[low as usize].above = id as u32;
                break;
            }
            seen[low as usize].place = Place::Passed;
            low = other.below;
        }
        let end = start + bytes;
        while high != NONE {
            let other = seen[high as usize];
            if other.last >= now {
                if end > other.start {
                    return Ok(false);
                }
                seen[high as usize].below = id as u32;
                break;
            }
            seen[high as usize].place = Place::Passed;
            high = other.above;
        }
        if low == NONE {
            lowest = id as u32;
        }
        near = id as u32;
        // A tensor that ends before it begins is alive when it begins.
        let last = if last < first { first } else { last };
        seen[id] = Seen { start, end, last, below: low, above: high, place: Place::Listed };
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::{ALIGNMENT, below, order, pack_slice};
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        /// Carried tables need no search: they have tensors in the order of time, and what is directly below each.
        #[test]
        fn a_carried_packing_is_followed(tensors in prop::collection::vec((1u64..9, 0u32..20, 0u32..10), 0..40)) {
            let range = |(bytes, first, more)| LiveRange { bytes: bytes * ALIGNMENT, first, last: first + more };
            let mut ranges: Vec<LiveRange> = tensors.into_iter().map(range).collect();
            ranges.sort_by_key(|range| range.first);
            let packed = pack_slice(&ranges).unwrap();
            let below = below(&order(&ranges, &packed.offsets).unwrap(), ranges.len());
            let packing = |size| (&packed.offsets[..], size, ALIGNMENT);
            let mut seen = vec![AHEAD; ranges.len()];
            prop_assert!(follow(&ranges, packing(packed.size), &below, &mut seen));
            prop_assert!(packed.size == 0 || !follow(&ranges, packing(packed.size - 1), &below, &mut seen));
        }
    }
}
