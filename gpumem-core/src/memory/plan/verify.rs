//! A check of finished packings that shares no idea with the packers.
//!
//! A sweep over time keeps the live tensors in a list ordered by address. A tensor that begins must lie between its two
//! neighbours in that list, inside the arena, and aligned. Nothing is taken on trust: the sweep also checks that it
//! visits every tensor once, in the order of time.

use super::LiveRange;
use super::{carried, order};

/// Where a tensor is in the sweep.
const UNSEEN: u32 = 0;
const LIVE: u32 = 1;
const ENDED: u32 = 2;

/// Words of scratch memory a tensor.
pub(super) const WORDS: usize = 7;

/// Whether `offsets` is a valid packing into `size` bytes. `entries` are those of a carried order, or none: they say where to look
/// first, and nothing else. `words` and `keys` are scratch memory; `words` must be all 0.
pub(super) const fn verify(
    ranges: &[LiveRange],
    offsets: &[u64],
    size: u64,
    alignment: u64,
    entries: &[u64],
    words: &mut [[u32; WORDS]],
    keys: &mut [u64],
) -> bool {
    let count = ranges.len();
    if offsets.len() != count || words.len() != count || keys.len() != count || alignment == 0 {
        return false;
    }
    let words = words.as_flattened_mut();
    let (by_first, words) = words.split_at_mut(count);
    let (by_last, words) = words.split_at_mut(count);
    let (below, words) = words.split_at_mut(count);
    let (above, words) = words.split_at_mut(count);
    let (state, words) = words.split_at_mut(count);
    let (head, guesses) = words.split_at_mut(count);
    carried::lowest(entries, guesses);
    order::by_first(ranges, by_first, keys, head, above);
    order::by_last(ranges, by_last, keys, head, above);

    // Links are index + 1; 0 ends the list. Both are written before they are read. `near` is where the last search ended: tensors that follow one another in
    // time are close in address, so searching from there, or from a guess, is what makes the sweep nearly linear.
    let mut near = 0u32;
    let mut ended = 0;
    let mut begun = 0;
    let mut now = 0;
    let mut latest_end = 0;
    while begun < count {
        let id = by_first[begun] as usize;
        let range = ranges[id];
        begun += 1;
        if range.first < now || state[id] != UNSEEN {
            return false;
        }
        now = range.first;
        while ended < count {
            let old = by_last[ended] as usize;
            let end = if ranges[old].last < ranges[old].first { ranges[old].first } else { ranges[old].last };
            if end >= now {
                break;
            }
            if end < latest_end || state[old] != LIVE {
                return false;
            }
            latest_end = end;
            state[old] = ENDED;
            ended += 1;
            if ranges[old].bytes == 0 {
                continue;
            }
            let (low, high) = (below[old], above[old]);
            if low != 0 {
                above[low as usize - 1] = high;
            }
            if high != 0 {
                below[high as usize - 1] = low;
            }
            if near == old as u32 + 1 {
                near = if low != 0 { low } else { high };
            }
        }
        state[id] = LIVE;
        let start = offsets[id];
        let end = match start.checked_add(range.bytes) {
            Some(end) => end,
            None => return false,
        };
        if end > size || !start.is_multiple_of(alignment) {
            return false;
        }
        // A tensor without bytes overlaps nothing.
        if range.bytes == 0 {
            continue;
        }
        let guess = guesses[id];
        if guess != 0 && state[guess as usize - 1] == LIVE && ranges[guess as usize - 1].bytes > 0 {
            near = guess;
        }
        while near != 0 && offsets[near as usize - 1] > start && below[near as usize - 1] != 0 {
            near = below[near as usize - 1];
        }
        while near != 0 && offsets[near as usize - 1] <= start && above[near as usize - 1] != 0 {
            near = above[near as usize - 1];
        }
        let (low, high) = if near == 0 {
            (0, 0)
        } else if offsets[near as usize - 1] > start {
            (below[near as usize - 1], near)
        } else {
            (near, 0)
        };
        if low != 0 {
            let at = low as usize - 1;
            if offsets[at] + ranges[at].bytes > start {
                return false;
            }
            above[at] = id as u32 + 1;
        }
        if high != 0 {
            let at = high as usize - 1;
            if end > offsets[at] {
                return false;
            }
            below[at] = id as u32 + 1;
        }
        below[id] = low;
        above[id] = high;
        near = id as u32 + 1;
    }
    true
}
