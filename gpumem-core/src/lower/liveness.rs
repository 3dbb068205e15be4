//! Live bytes: the one native sum over live ranges.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::{AddAssign, SubAssign};

/// Returns the live bytes at each of `count` operation indices. `all` are live ranges, as first and last operation index, with their bytes.
pub(in crate::lower) fn live_bytes<B>(count: usize, all: impl IntoIterator<Item = ([usize; 2], B)>) -> Vec<B>
where
    B: Copy + Default + AddAssign + SubAssign,
{
    // The bytes that begin at an index, less those that end at the one before it.
    let mut changes = vec![B::default(); count + 1];
    for ([first, last], bytes) in all {
        changes[first] += bytes;
        changes[last + 1] -= bytes;
    }
    let mut live = B::default();
    for change in &mut changes {
        live += *change;
        *change = live;
    }
    changes.truncate(count);
    changes
}
