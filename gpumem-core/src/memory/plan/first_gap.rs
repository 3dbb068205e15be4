//! Best fit in the order of time: each tensor takes the smallest hole between live tensors that holds it.

use super::Span;

/// The free memory below `top`. No two holes touch, and none touches `top`.
struct Holes<'a> {
    starts: &'a mut [u64],
    ends: &'a mut [u64],
    count: usize,
    top: u64,
}

impl Holes<'_> {
    /// Takes `bytes` bytes from the smallest hole that has them, else from the top. Returns their offset.
    const fn take(&mut self, bytes: u64) -> u64 {
        let mut tightest = u64::MAX;
        let mut best = self.count;
        let mut at = 0;
        while at < self.count {
            let room = self.ends[at] - self.starts[at];
            if room >= bytes && room < tightest {
                tightest = room;
                best = at;
            }
            at += 1;
        }
        if best == self.count {
            let offset = self.top;
            self.top += bytes;
            return offset;
        }
        let offset = self.starts[best];
        self.starts[best] += bytes;
        if tightest == bytes {
            self.remove(best);
        }
        offset
    }

    /// Frees `start..end`.
    const fn give(&mut self, start: u64, end: u64) {
        let mut at = self.count;
        while at > 0 && self.starts[at - 1] > start {
            at -= 1;
        }
        let joins_left = at > 0 && self.ends[at - 1] == start;
        let joins_right = at < self.count && self.starts[at] == end;
        if joins_left && joins_right {
            self.ends[at - 1] = self.ends[at];
            self.remove(at);
        } else if joins_left {
            self.ends[at - 1] = end;
        } else if joins_right {
            self.starts[at] = start;
        } else {
            let mut k = self.count;
            while k > at {
                self.starts[k] = self.starts[k - 1];
                self.ends[k] = self.ends[k - 1];
                k -= 1;
            }
            self.starts[at] = start;
            self.ends[at] = end;
            self.count += 1;
        }
        if self.count > 0 && self.ends[self.count - 1] == self.top {
            self.count -= 1;
            self.top = self.starts[self.count];
        }
    }

    const fn remove(&mut self, at: usize) {
        let mut k = at + 1;
        while k < self.count {
            self.starts[k - 1] = self.starts[k];
            self.ends[k - 1] = self.ends[k];
            k += 1;
        }
        self.count -= 1;
    }
}

/// Writes offsets and returns the size of the packing. `backwards` sweeps from the last operation to the first. `starts` and `ends` are scratch
/// memory, as long as the spans.
pub(super) const fn pack(
    spans: &[Span],
    by_first: &[u32],
    by_last: &[u32],
    backwards: bool,
    offsets: &mut [u64],
    starts: &mut [u64],
    ends: &mut [u64],
) -> u64 {
    let count = spans.len();
    let mut holes = Holes { starts, ends, count: 0, top: 0 };
    let mut size = 0;
    let mut ended = 0;
    let mut begun = 0;
    while begun < count {
        let id = if backwards { by_last[count - 1 - begun] } else { by_first[begun] } as usize;
        let span = spans[id];
        begun += 1;
        if span.bytes == 0 {
            offsets[id] = 0;
            continue;
        }
        while ended < count {
            let old_id = if backwards { by_first[count - 1 - ended] } else { by_last[ended] } as usize;
            let old = spans[old_id];
            if (backwards && old.first <= span.last) || (!backwards && old.last >= span.first) {
                break;
            }
            if old.bytes > 0 {
                holes.give(offsets[old_id], offsets[old_id] + old.bytes);
            }
            ended += 1;
        }
        offsets[id] = holes.take(span.bytes);
        if holes.top > size {
            size = holes.top;
        }
    }
    size
}
