//! Moves single tensors down. A packing that is a little too large is often so for one small tensor at the top, while there is free memory below
//! that a planner's rule kept it from. The space of a stacked tensor that has not begun yet is an example.

use super::Span;
use super::stack::highest;

/// The most tensors that are moved.
const MOST_MOVES: usize = 2;

/// The most places that are tried for one tensor.
const MOST_PLACES: usize = 4;

/// Moves the tensors that end highest into gaps below, until the packing ends at `bound` or no gap is found. Returns its size.
pub(super) fn sink(spans: &[Span], offsets: &mut [u64], mut size: u64, bound: u64) -> u64 {
    for _ in 0..MOST_MOVES {
        let top = highest(spans, offsets);
        let offset = if size > bound { gap(spans, offsets, top, size) } else { None };
        let Some(offset) = offset else { break };
        offsets[top] = offset;
        let top = highest(spans, offsets);
        size = offsets[top] + spans[top].bytes;
    }
    size
}

/// Returns the lowest offset at which `tensor` overlaps nothing and ends below `size`; `None` if none is found soon.
fn gap(spans: &[Span], offsets: &[u64], tensor: usize, size: u64) -> Option<u64> {
    let own = spans[tensor];
    let lives_beside = |other: &Span| other.bytes > 0 && other.first <= own.last && own.first <= other.last;
    let mut offset = 0;
    for _ in 0..MOST_PLACES {
        let end = offset + own.bytes;
        if end >= size {
            break;
        }
        let beside =
            spans.iter().zip(offsets).enumerate().filter(|(at, (other, _))| *at != tensor && lives_beside(other));
        let in_the_way = beside
            .map(|(_, (other, &start))| (start, start + other.bytes))
            .filter(|&(start, past)| start < end && offset < past);
        match in_the_way.map(|(_, past)| past).max() {
            Some(past) => offset = past,
            None => return Some(offset),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_on_top_sinks_into_a_gap_that_fits() {
        let range = |bytes, first, last| Span { bytes, first, last };
        // The second begins only when the third has ended.
        let ranges = [range(512, 0, 9), range(1024, 5, 9), range(512, 0, 9), range(768, 1, 3)];
        let mut offsets = [0, 512, 1536, 2048];
        assert_eq!(sink(&ranges, &mut offsets, 2816, 2048), 2048);
        assert_eq!(offsets, [0, 512, 1536, 512]);
        // Nothing fits where something lives.
        let ranges = [range(512, 0, 9), range(1024, 2, 9), range(768, 1, 3)];
        let mut offsets = [0, 512, 1536];
        assert_eq!(sink(&ranges, &mut offsets, 2304, 2304 - 256), 2304);
        assert_eq!(offsets, [0, 512, 1536]);
    }
}
