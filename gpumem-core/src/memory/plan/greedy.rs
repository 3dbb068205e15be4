//! Greedy by size: the largest tensor first, each into the smallest gap between the placed tensors that live at the
//! same time. Quadratic, and often the best on graphs that are no training step.

use super::Span;

/// Writes offsets and returns the size of the packing. `next` is scratch memory, as long as the spans.
pub(super) const fn pack(spans: &[Span], by_size: &[u32], offsets: &mut [u64], next: &mut [u32]) -> u64 {
    let mut size = 0;
    // The placed tensors, by offset. Links are index + 1; 0 ends the list.
    let mut head = 0u32;
    let mut k = 0;
    while k < by_size.len() {
        let id = by_size[k] as usize;
        let span = spans[id];
        k += 1;
        if span.bytes == 0 {
            offsets[id] = 0;
            continue;
        }
        let mut low = 0;
        let mut tightest = u64::MAX;
        let mut offset = 0;
        let mut link = head;
        while link != 0 {
            let at = link as usize - 1;
            let placed = spans[at];
            if placed.first <= span.last && span.first <= placed.last {
                let start = offsets[at];
                if start > low {
                    let room = start - low;
                    if room >= span.bytes && room < tightest {
                        tightest = room;
                        offset = low;
                    }
                }
                if start + placed.bytes > low {
                    low = start + placed.bytes;
                }
            }
            link = next[at];
        }
        if tightest == u64::MAX {
            offset = low;
        }
        offsets[id] = offset;
        if offset + span.bytes > size {
            size = offset + span.bytes;
        }

        let mut before = 0u32;
        let mut link = head;
        while link != 0 && offsets[link as usize - 1] <= offset {
            before = link;
            link = next[link as usize - 1];
        }
        next[id] = link;
        if before == 0 {
            head = id as u32 + 1;
        } else {
            next[before as usize - 1] = id as u32 + 1;
        }
    }
    size
}
