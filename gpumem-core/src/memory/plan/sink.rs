//! Moves single tensors down. A packing that is a little too large is often so for one small tensor at the top, while there is free memory below
//! that a planner's rule kept it from. The space of a stacked tensor that has not begun yet is an example.

use super::Span;

/// The most tensors that are moved.
const MOST_MOVES: usize = 2;

/// The most places that are tried for one tensor.
const MOST_PLACES: usize = 4;

/// Moves the tensors that end highest into gaps below, until the packing ends at `bound` or no gap is found. Returns its
/// size.
pub(super) const fn sink(ranges: &[Span], offsets: &mut [u64], mut size: u64, bound: u64) -> u64 {
    let mut moves = 0;
    while size > bound && moves < MOST_MOVES {
        let highest = highest(ranges, offsets);
        match gap(ranges, offsets, highest, size) {
            Some(offset) => offsets[highest] = offset,
            None => return size,
        }
        let next = self::highest(ranges, offsets);
        size = offsets[next] + ranges[next].bytes;
        moves += 1;
    }
    size
}

/// Returns the tensor that ends highest.
pub(super) const fn highest(ranges: &[Span], offsets: &[u64]) -> usize {
    let mut best = 0;
    let mut end = 0;
    let mut i = 0;
    while i < ranges.len() {
        if offsets[i] + ranges[i].bytes > end {
            best = i;
            end = offsets[i] + ranges[i].bytes;
        }
        i += 1;
    }
    best
}

/// Returns the lowest offset at which `tensor` overlaps nothing and ends below `size`; `None` if none is found soon.
const fn gap(ranges: &[Span], offsets: &[u64], tensor: usize, size: u64) -> Option<u64> {
    let own = ranges[tensor];
    let mut offset = 0;
    let mut places = 0;
    while places < MOST_PLACES && offset + own.bytes < size {
        // Past everything that is in the way here.
        let mut past = offset;
        let mut i = 0;
        while i < ranges.len() {
            let other = ranges[i];
            let lives = other.first <= own.last && own.first <= other.last && other.bytes > 0;
            if lives && i != tensor {
                let end = offsets[i] + other.bytes;
                if offsets[i] < offset + own.bytes && offset < end && end > past {
                    past = end;
                }
            }
            i += 1;
        }
        if past == offset {
            return Some(offset);
        }
        offset = past;
        places += 1;
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
