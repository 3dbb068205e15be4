//! The packer of plans that are made once and kept, which may take seconds.

use super::native_stack::Stacks;
use super::search::pack_to_bound;
use super::turns::{LONG, improve_some};
use super::{LiveRange, Overflow, PackedSlice, Span, order, pack_slice, replay};
use alloc::vec;
use alloc::vec::Vec;

/// The looks at tensors that take three to five seconds of one core in an optimised build.
pub const THOROUGH: u64 = 4_000_000_000;

/// Packs `ranges` as [`pack_slice`] does and, if that misses the bound, searches on until about `looks` tensors were looked at.
///
/// The result depends on nothing else: seeds are fixed, and no time is measured. It may be smaller than what the compiler plans for these tensors, so
/// it is no size to announce for a network that is compiled. It is for offsets that are used as they come out of here.
///
/// # Errors
/// [`Overflow`] as there.
pub fn pack_slice_thoroughly(ranges: &[LiveRange], mut looks: u64) -> Result<PackedSlice, Overflow> {
    let quick = pack_slice(ranges)?;
    if quick.size <= quick.lower_bound {
        return Ok(quick);
    }
    // Longer searches come closer to the bound from where the short ones began than from where these ended.
    let mut packed = pack_to_bound(ranges, 0)?;
    let spans = Stacks::new(ranges)?.spans;
    for tensors in apart(&spans) {
        improve_some(&spans, &tensors, &mut packed.offsets, packed.lower_bound, LONG, &mut looks);
    }
    let ends = ranges.iter().zip(&packed.offsets).map(|(range, offset)| offset + range.bytes);
    packed.size = ends.max().unwrap_or(0);
    if let Some(order) = order(ranges, &packed.offsets) {
        packed.size = replay(&order, ranges, &mut packed.offsets);
    }
    Ok(packed.min_by_size(quick))
}

/// Returns the tensors in groups: no tensor of one lives with a tensor of another.
fn apart(spans: &[Span]) -> Vec<Vec<usize>> {
    let mut by_first: Vec<usize> = (0..spans.len()).filter(|&at| spans[at].bytes > 0).collect();
    by_first.sort_by_key(|&at| spans[at].first);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut last = 0;
    for at in by_first {
        match groups.last_mut() {
            Some(group) if spans[at].first <= last => group.push(at),
            _ => groups.push(vec![at]),
        }
        last = last.max(spans[at].last);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_of_other_times_are_apart() {
        let span = |bytes, first, last| Span { bytes, first, last };
        let spans = [span(1, 4, 5), span(1, 0, 2), span(0, 2, 4), span(1, 2, 3), span(1, 5, 9), span(1, 10, 10)];
        assert_eq!(apart(&spans), [vec![1, 3], vec![0, 4], vec![5]]);
        assert!(apart(&[]).is_empty());
    }
}
