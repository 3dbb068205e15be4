//! Offsets for tensors by live range: the best of a small portfolio of packers, and an independent check.
//!
//! Every algorithm is one `const fn` over slices with scratch memory from its caller. The const entry points ([`pack`],
//! [`verify`]) bring arrays, their run-time twins ([`pack_slice`], [`verify_slice`]) bring vectors.
//!
//! Const evaluation takes about a microsecond for each instruction. So the macro packs at the sizes that it expects, and const evaluation replays
//! what it found: see [`order`]. If that does not reach the lower bound, packers are tried in the order in which they usually succeed, and the
//! search ends as soon as one reaches it.

mod address_order;
mod bound;
mod bucket_sort;
mod carry;
pub(in crate::memory) mod choose;
mod first_gap;
mod greedy;
mod repair;
mod search;
mod sink;
mod stack;
mod verify;

use alloc::vec;
use alloc::vec::Vec;

pub use address_order::{below, order, replay};
use bound::Peak;
pub(crate) use bucket_sort::sorted;
pub use carry::{AddressOrders, OwnedOrder};

/// The alignment of every offset and every size in an arena, in bytes.
pub const ALIGNMENT: u64 = 256;

/// One packer with its settings.
enum Attempt {
    /// [`stack`] around the turn or the peak. Tensors there that live for more than `short` moments are stacked, and later ones that live for
    /// more than `long` are piled. In several rounds, the tensor that ended highest is placed before all others in the next round; the packers
    /// that follow keep that order.
    Stack { at_peak: bool, short: u32, long: u32, rounds: u32 },
    /// [`greedy`], for few tensors.
    Greedy,
    /// [`first_gap`], unless the packing is near the bound already.
    Holes { backwards: bool },
}

/// The portfolio, in the order in which packers usually succeed: one of the first two on nearly every step of the networks that
/// `tests/truth.rs` holds to the bound, the third on what they leave.
const ATTEMPTS: [Attempt; 10] = [
    Attempt::Stack { at_peak: true, short: 4, long: LONG, rounds: 1 },
    Attempt::Stack { at_peak: false, short: 24, long: LONG, rounds: 1 },
    Attempt::Stack { at_peak: false, short: 12, long: LONG, rounds: 12 },
    Attempt::Stack { at_peak: true, short: 4, long: LONG, rounds: 12 },
    Attempt::Stack { at_peak: false, short: 12, long: NEVER, rounds: 1 },
    Attempt::Stack { at_peak: false, short: 16, long: NEVER, rounds: 1 },
    Attempt::Stack { at_peak: false, short: 4, long: NEVER, rounds: 1 },
    Attempt::Greedy,
    Attempt::Holes { backwards: false },
    Attempt::Holes { backwards: true },
];

/// The number of attempts that are made natively before the [`search`], which is quicker than the other attempts.
const FIRST: usize = 2;

/// The number of other tensors that [`stack`] looks at, for each tensor, before it gives up. The first is for const evaluation, in which training
/// steps need a few dozen; the second is native.
const PATIENCE: [usize; 2] = [64, 1024];

/// The number of moments from which on a live range in the backward pass is long.
const LONG: u32 = 32;

/// A length that no live range has.
const NEVER: u32 = u32::MAX;

/// The most tensors for which the quadratic packer is tried.
const GREEDY_LIMIT: usize = 300;

/// The divisor of the bound that gives what is near it. Sweeps are not tried on a packing that is as near, since they would not come closer.
const NEAR: u64 = 100;

/// A tensor that needs memory for some operations of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveRange {
    /// Bytes, a multiple of [`ALIGNMENT`]. A tensor of 0 bytes gets offset 0 and overlaps nothing.
    pub bytes: u64,
    /// The first operation that needs it.
    pub first: u32,
    /// The last operation that needs it, included. Before `first` it counts as `first`.
    pub last: u32,
}

/// The error of tensors whose bytes add up to 2^64 - 1 or more. No packing was tried: with a smaller sum no offset can overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

/// Offsets for `N` tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing<const N: usize> {
    /// Bytes from the beginning of the packed region to each tensor.
    pub offsets: [u64; N],
    /// Bytes of the packed region.
    pub size: u64,
    /// The largest sum of live bytes over all operations: no packing is smaller.
    pub lower_bound: u64,
    /// The first operation at which that many bytes are live.
    pub peak: u32,
}

/// Offsets for tensors whose number is known at run time only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedSlice {
    /// Bytes from the beginning of the packed region to each tensor.
    pub offsets: Vec<u64>,
    /// Bytes of the packed region.
    pub size: u64,
    /// The largest sum of live bytes over all operations: no packing is smaller.
    pub lower_bound: u64,
    /// The first operation at which that many bytes are live.
    pub peak: u32,
}

/// Tensors and their packing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedRanges {
    /// The tensors.
    pub ranges: Vec<LiveRange>,
    /// The packing of these ranges.
    pub packed: PackedSlice,
}

/// A live range on the compressed time axis.
#[derive(Clone, Copy)]
struct Span {
    bytes: u64,
    first: u32,
    last: u32,
}

const NO_SPAN: Span = Span { bytes: 0, first: 0, last: 0 };

/// Words of 32 bits and of 64 bits of scratch memory for each tensor.
const WORDS: usize = 6 + 2 * stack::LINKS;
const LONGS: usize = 5;

struct Scratch<'a> {
    spans: &'a mut [Span],
    words: &'a mut [[u32; WORDS]],
    longs: &'a mut [[u64; LONGS]],
}

/// Packs `ranges` in const evaluation.
pub const fn pack<const N: usize>(ranges: &[LiveRange; N]) -> Result<Packing<N>, Overflow> {
    let mut offsets = [0; N];
    let mut spans = [NO_SPAN; N];
    let mut words = [[0; WORDS]; N];
    let mut longs = [[0; LONGS]; N];
    let scratch = Scratch { spans: &mut spans, words: &mut words, longs: &mut longs };
    match pack_into(ranges, &mut offsets, &ATTEMPTS, PATIENCE[0], scratch) {
        Ok((size, peak)) => Ok(Packing { offsets, size, lower_bound: peak.bytes, peak: peak.operation }),
        Err(Overflow) => Err(Overflow),
    }
}

/// Packs `ranges` at run time. The offsets are those of [`pack`] if the first packers reach the lower bound. If they miss it, more is tried than
/// there, and the result is pushed down as far as possible.
pub fn pack_slice(ranges: &[LiveRange]) -> Result<PackedSlice, Overflow> {
    pack_slice_within(ranges, 0)
}

/// Packs tensors as [`pack_slice`] does, but stops at a packing of at most `enough` bytes.
///
/// # Errors
/// [`Overflow`] as there.
pub fn pack_slice_within(ranges: &[LiveRange], enough: u64) -> Result<PackedSlice, Overflow> {
    let mut offsets = vec![0; ranges.len()];
    let (mut size, peak) = tried(ranges, &mut offsets, &ATTEMPTS[..FIRST])?;
    let goal = Peak { bytes: peak.bytes.max(enough), operation: peak.operation };
    if size == u64::MAX {
        // Stacks may give up. The other attempts do not, and only a packing can be improved.
        size = tried(ranges, &mut offsets, &ATTEMPTS[FIRST..])?.0;
    }
    if size > goal.bytes {
        size = search::search(ranges, &mut offsets, size, goal);
    }
    if size > goal.bytes {
        let mut others = vec![0; ranges.len()];
        let (other, _) = tried(ranges, &mut others, &ATTEMPTS[FIRST..])?;
        if other < size {
            (size, offsets) = (other, others);
        }
    }
    if size > peak.bytes
        && let Some(order) = order(ranges, &offsets)
    {
        size = replay(&order, ranges, &mut offsets);
    }
    Ok(PackedSlice { offsets, size, lower_bound: peak.bytes, peak: peak.operation })
}

fn tried(ranges: &[LiveRange], offsets: &mut [u64], attempts: &[Attempt]) -> Result<(u64, Peak), Overflow> {
    let count = ranges.len();
    let scratch = Scratch {
        spans: &mut vec![NO_SPAN; count],
        words: &mut vec![[0; WORDS]; count],
        longs: &mut vec![[0; LONGS]; count],
    };
    pack_into(ranges, offsets, attempts, PATIENCE[1], scratch)
}

/// True if `packing` keeps tensors that live at the same time apart, inside its size. Every offset must be a multiple of `alignment` (usually
/// [`ALIGNMENT`]).
pub const fn verify<const N: usize>(ranges: &[LiveRange; N], packing: &Packing<N>, alignment: u64) -> bool {
    verify_carried(ranges, packing, alignment, &[])
}

/// True if `packing` is valid, as for [`verify`]. `below` says what is directly below each tensor when it begins, as [`below`] has it, or is
/// empty. It says where to look first, and is not trusted.
pub const fn verify_carried<const N: usize>(
    ranges: &[LiveRange; N],
    packing: &Packing<N>,
    alignment: u64,
    below: &[u32],
) -> bool {
    let scratch =
        verify::Scratch { seen: &mut [verify::AHEAD; N], words: &mut [[0; verify::WORDS]; N], keys: &mut [0; N] };
    verify::verify(ranges, &packing.offsets, packing.size, alignment, below, scratch)
}

/// True if a packing is valid: [`verify_carried`] for tensors whose number is known at run time only.
pub fn verify_slice(ranges: &[LiveRange], offsets: &[u64], size: u64, alignment: u64, below: &[u32]) -> bool {
    let count = ranges.len();
    let scratch = verify::Scratch {
        seen: &mut vec![verify::AHEAD; count],
        words: &mut vec![[0; verify::WORDS]; count],
        keys: &mut vec![0; count],
    };
    verify::verify(ranges, offsets, size, alignment, below, scratch)
}

/// Writes the best offsets found, and returns their size and the lower bound. The scratch memory must be all 0.
const fn pack_into(
    ranges: &[LiveRange],
    offsets: &mut [u64],
    attempts: &[Attempt],
    patience: usize,
    scratch: Scratch<'_>,
) -> Result<(u64, Peak), Overflow> {
    let count = ranges.len();
    let Scratch { spans, words, longs } = scratch;
    let (by_first, words) = words.as_flattened_mut().split_at_mut(count);
    let (by_last, words) = words.split_at_mut(count);
    let (by_size, words) = words.split_at_mut(count);
    let (begins, words) = words.split_at_mut(count);
    let (next, words) = words.split_at_mut(count);
    let (lives, words) = words.split_at_mut(count);
    let (linked, links) = words.split_at_mut(count * stack::LINKS);
    let (heights, longs) = longs.as_flattened_mut().split_at_mut(count);
    let (ceilings, longs) = longs.split_at_mut(count);
    let (starts, longs) = longs.split_at_mut(count);
    let (ends, trial) = longs.split_at_mut(count);

    // Each packer's size is at most the sum of all bytes, so this is the only place where offsets could overflow.
    let mut sum = 0u64;
    let mut i = 0;
    while i < count {
        sum = match sum.checked_add(ranges[i].bytes) {
            // The largest number is kept for "nothing packed yet".
            Some(sum) if sum < u64::MAX => sum,
            _ => return Err(Overflow),
        };
        i += 1;
    }
    bucket_sort::by_first(ranges, by_first, starts, begins, next);
    bucket_sort::by_last(ranges, by_last, starts, begins, next);
    let peak = match bound::peak(ranges, by_first, by_last) {
        Ok(peak) => peak,
        Err(Overflow) => return Err(Overflow),
    };
    bucket_sort::by_size(ranges, by_size, starts, begins, next);
    let axis = bound::compress(ranges, by_first, by_last, &peak, spans);

    let mut size = u64::MAX;
    let mut attempt = 0;
    while attempt < attempts.len() && size > peak.bytes {
        let rounds = match attempts[attempt] {
            Attempt::Stack { rounds, .. } => rounds,
            _ => 1,
        };
        let mut round = 0;
        while round < rounds && size > peak.bytes {
            let tried = match attempts[attempt] {
                Attempt::Stack { at_peak, short, long, .. } => {
                    let turn = if at_peak { axis.peak } else { axis.turn };
                    let stacked = stack::Stacked {
                        turn,
                        short,
                        long,
                        small: peak.bytes / stack::SMALL,
                        top: peak.bytes,
                        patience,
                    };
                    let orders = stack::Orders { by_first, by_last, by_size, nested: None };
                    let scratch = stack::Scratch {
                        begins: &mut *begins,
                        next: &mut *next,
                        lives: &mut *lives,
                        linked: &mut *linked,
                        links: &mut *links,
                        heights: &mut *heights,
                        ceilings: &mut *ceilings,
                        starts: &mut *starts,
                        ends: &mut *ends,
                    };
                    stack::pack(spans, orders, axis.moments, stacked, trial, scratch)
                }
                Attempt::Greedy if count <= GREEDY_LIMIT => Some(greedy::pack(spans, by_size, trial, next)),
                Attempt::Holes { backwards } if size - peak.bytes > peak.bytes / NEAR => {
                    Some(first_gap::pack(spans, by_first, by_last, backwards, trial, starts, ends))
                }
                _ => None,
            };
            let Some(tried) = tried else { break };
            // A tensor on top sinks, or comes first in the next round.
            let tried = if rounds > 1 { tried } else { sink::sink(spans, trial, tried, peak.bytes) };
            if tried < size {
                size = tried;
                offsets.copy_from_slice(trial);
            }
            if rounds > 1 {
                bucket_sort::to_front(by_size, sink::highest(spans, trial) as u32);
            }
            round += 1;
        }
        attempt += 1;
    }
    Ok((size, peak))
}
