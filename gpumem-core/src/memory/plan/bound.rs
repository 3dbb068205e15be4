//! The lower bound of all packings, and the time axis that packers work on.

use super::{LiveRange, Overflow, Span};

/// The largest sum of live bytes over all operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peak {
    /// The sum, in bytes.
    pub(super) bytes: u64,
    /// The first operation that reaches it.
    pub(super) operation: u32,
}

/// Fails for tensors whose bytes add up to 2^64 - 1 or more. A packer's size is at most that sum, so no other place has to look for overflow. The
/// largest number is kept for "nothing packed yet".
pub(super) const fn check_sum(ranges: &[LiveRange]) -> Result<(), Overflow> {
    let mut sum = 0u64;
    let mut i = 0;
    while i < ranges.len() {
        sum = match sum.checked_add(ranges[i].bytes) {
            Some(sum) if sum < u64::MAX => sum,
            _ => return Err(Overflow),
        };
        i += 1;
    }
    Ok(())
}

/// Returns the peak, by a sweep over the operations. `by_first` and `by_last` are the orders of [`order`](super::order).
///
/// Live bytes grow only where a tensor begins, so that only those operations are visited.
pub(super) const fn peak(ranges: &[LiveRange], by_first: &[u32], by_last: &[u32]) -> Result<Peak, Overflow> {
    let mut live = 0u64;
    let mut peak = Peak { bytes: 0, operation: 0 };
    let mut ended = 0;
    let mut begun = 0;
    while begun < by_first.len() {
        let range = ranges[by_first[begun] as usize];
        // A tensor ends before its neighbour in time begins, and it has begun by then: no underflow.
        while ended < begun {
            let old = ranges[by_last[ended] as usize];
            if old.last >= range.first || old.first >= range.first {
                break;
            }
            live -= old.bytes;
            ended += 1;
        }
        live = match live.checked_add(range.bytes) {
            Some(live) => live,
            None => return Err(Overflow),
        };
        if live > peak.bytes {
            peak = Peak { bytes: live, operation: range.first };
        }
        begun += 1;
    }
    Ok(peak)
}

/// The compressed time axis.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    /// The number of moments: points of the compressed time axis.
    pub(super) moments: usize,
    /// The moment at which most tensors are alive: in a training step, where the forward pass turns into the backward.
    pub(super) turn: u32,
    /// The moment at which most bytes are alive.
    pub(super) peak: u32,
}

/// Rewrites the time axis to the moments at which some tensor begins, numbered from 0. There is at most one for each tensor, so that tables over
/// time fit arrays as long as the ranges, whatever the operations are numbered.
///
/// Two ranges intersect exactly if the later beginning lies in both, so the compressed ranges intersect where the
/// original ones do.
pub(super) const fn compress(
    ranges: &[LiveRange],
    by_first: &[u32],
    by_last: &[u32],
    peak: &Peak,
    spans: &mut [Span],
) -> Axis {
    let count = ranges.len();
    let mut moments = 0u32;
    let mut present = 0;
    let mut ended = 0;
    let mut begun = 0;
    let mut most = 0;
    let mut turn = 0;
    let mut peak_moment = 0;
    while begun < count {
        let id = by_first[begun] as usize;
        let range = ranges[id];
        if begun == 0 || range.first > present {
            present = range.first;
            while ended < begun {
                let old = by_last[ended] as usize;
                if ranges[old].last >= present || ranges[old].first >= present {
                    break;
                }
                spans[old].last = moments - 1;
                ended += 1;
            }
            if present == peak.operation {
                peak_moment = moments;
            }
            moments += 1;
        }
        spans[id].bytes = range.bytes;
        spans[id].first = moments - 1;
        begun += 1;
        // The second half does not count: at the end of a step many gradients wait for their updates.
        if begun - ended > most && 2 * begun <= count + 2 {
            most = begun - ended;
            turn = moments - 1;
        }
    }
    while ended < count {
        spans[by_last[ended] as usize].last = moments - 1;
        ended += 1;
    }
    Axis { moments: moments as usize, turn, peak: peak_moment }
}
