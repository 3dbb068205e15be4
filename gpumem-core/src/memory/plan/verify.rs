//! A check of finished packings that shares no idea with the packers.
//!
//! A sweep over time keeps tensors in a list ordered by address. A tensor that begins must lie between the two nearest in that list that are
//! still alive, inside the arena, and aligned; those between them that are not leave the list. Nothing is taken on trust: the sweep also
//! checks that it visits every tensor once, in the order of time.
//!
//! Const evaluation pays for every index, so that what is known of a tensor is read at once.

use super::LiveRange;
use super::{carried, order};

/// No tensor.
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

/// Where a tensor is in the sweep.
#[derive(Clone, Copy)]
enum Place {
    Ahead,
    Listed,
    Passed,
}

/// Before the sweep.
pub(super) const AHEAD: Seen = Seen { start: 0, end: 0, last: 0, below: NONE, above: NONE, place: Place::Ahead };

/// Words of scratch memory a tensor.
pub(super) const WORDS: usize = 4;

/// Scratch memory, as long as there are tensors: what was [`AHEAD`], and 0.
pub(super) struct Scratch<'a> {
    pub(super) seen: &'a mut [Seen],
    pub(super) words: &'a mut [[u32; WORDS]],
    pub(super) keys: &'a mut [u64],
}

/// Whether `offsets` is a valid packing into `size` bytes. `entries` are those of a carried order, or none: they say where to look
/// first, and nothing else.
pub(super) const fn verify(
    ranges: &[LiveRange],
    offsets: &[u64],
    size: u64,
    alignment: u64,
    entries: &[u64],
    scratch: Scratch<'_>,
) -> bool {
    let count = ranges.len();
    let Scratch { seen, words, keys } = scratch;
    if offsets.len() != count || seen.len() != count || words.len() != count || keys.len() != count || alignment == 0 {
        return false;
    }
    let (guesses, words) = words.as_flattened_mut().split_at_mut(count);
    let (by_first, words) = words.split_at_mut(count);
    let (head, next) = words.split_at_mut(count);
    carried::lowest(entries, guesses);
    let packing = (offsets, size, alignment);
    match sweep(ranges, packing, guesses, None, seen) {
        Ok(is_valid) => is_valid,
        Err(OutOfOrder) => {
            order::by_first(ranges, by_first, keys, head, next);
            let mut i = 0;
            while i < count {
                seen[i] = AHEAD;
                i += 1;
            }
            matches!(sweep(ranges, packing, guesses, Some(by_first), seen), Ok(true))
        }
    }
}

/// A tensor begins before the one that came before it.
struct OutOfOrder;

/// Visits the tensors in an order, or as they come. `guesses` are numbers of tensors and one more: 0 is none.
const fn sweep(
    ranges: &[LiveRange],
    (offsets, size, alignment): (&[u64], u64, u64),
    guesses: &[u32],
    by_first: Option<&[u32]>,
    seen: &mut [Seen],
) -> Result<bool, OutOfOrder> {
    // `near` is where the last search ended: tensors that follow one another in time are close in address, so searching from there, or from a
    // guess, is what makes the sweep nearly linear.
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
        if guess != 0 && matches!(seen[guess as usize - 1].place, Place::Listed) {
            near = guess - 1;
        }
        // The last one that does not begin above it, and what comes next.
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
        // What ends before it begins is alive when it begins.
        let last = if last < first { first } else { last };
        seen[id] = Seen { start, end, last, below: low, above: high, place: Place::Listed };
    }
    Ok(true)
}
