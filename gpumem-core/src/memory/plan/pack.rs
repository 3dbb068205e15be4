//! The packer of const evaluation: [`stack`] with a few settings, of which the smallest packing is taken.
//!
//! Const evaluation takes about a microsecond for each instruction. So it packs only at sizes that the macro could not know, such as those of a
//! generic batch, and only if no order that the macro found is good enough there. Settings are tried in the order in which they usually succeed,
//! and the first packing that reaches the lower bound ends the search.

use super::stack::{self, Orders, SMALL, Scratch, Stacked};
use super::{LiveRange, NO_SPAN, Overflow, Packing, bound, bucket_sort};

/// The settings of one attempt.
pub(super) struct Attempt {
    /// True to stack tensors around the peak, false to stack them around the turn.
    pub(super) at_peak: bool,
    /// Tensors that live there for more moments than these are stacked.
    pub(super) short: u32,
    /// Later tensors that live for more moments than these are piled.
    pub(super) long: u32,
    /// The number of rounds. In each but the first, the tensor that ended highest is placed before all others. Attempts that follow keep that
    /// order.
    pub(super) rounds: u32,
}

/// The number of moments from which on a live range in the backward pass is long.
const LONG: u32 = 32;

/// A length that no live range has.
const NEVER: u32 = u32::MAX;

/// The attempts: one of the first two reaches the bound on nearly every step of the networks that `tests/truth.rs` holds to it, the third on
/// what they leave.
pub(super) const ATTEMPTS: [Attempt; 7] = [
    attempt(true, 4, LONG, 1),
    attempt(false, 24, LONG, 1),
    attempt(false, 12, LONG, 12),
    attempt(true, 4, LONG, 12),
    attempt(false, 12, NEVER, 1),
    attempt(false, 16, NEVER, 1),
    attempt(false, 4, NEVER, 1),
];

/// The attempt that is made with all patience if every other one was given up. Without a pile, it always ends.
pub(super) const LAST: Attempt = attempt(true, 4, NEVER, 1);

/// The number of other tensors that [`stack`] looks at, for each tensor, before it gives up. Training steps need a few dozen.
const PATIENCE: usize = 64;

/// The patience of [`LAST`]: no stack looks at as many tensors.
pub(super) const ALL_PATIENCE: usize = usize::MAX;

const fn attempt(at_peak: bool, short: u32, long: u32, rounds: u32) -> Attempt {
    Attempt { at_peak, short, long, rounds }
}

/// Packs `ranges` in const evaluation.
pub const fn pack<const N: usize>(ranges: &[LiveRange; N]) -> Result<Packing<N>, Overflow> {
    match pack_quickly(ranges) {
        Ok(Some(packing)) => Ok(packing),
        Ok(None) => pack_patiently(ranges),
        Err(Overflow) => Err(Overflow),
    }
}

/// Packs `ranges`. `None` if every attempt takes too long, as it may do for tensors that are no training step.
pub(super) const fn pack_quickly<const N: usize>(ranges: &[LiveRange; N]) -> Result<Option<Packing<N>>, Overflow> {
    pack_by(&ATTEMPTS, PATIENCE, ranges)
}

/// Packs `ranges`, however long it takes.
pub(super) const fn pack_patiently<const N: usize>(ranges: &[LiveRange; N]) -> Result<Packing<N>, Overflow> {
    match pack_by(&[LAST], ALL_PATIENCE, ranges) {
        Ok(Some(packing)) => Ok(packing),
        Ok(None) => panic!("a stack without a pile was given up: a defect of gpumem, please report it"),
        Err(Overflow) => Err(Overflow),
    }
}

/// Returns the smallest packing of these attempts; `None` if all of them were given up.
const fn pack_by<const N: usize>(
    attempts: &[Attempt],
    patience: usize,
    ranges: &[LiveRange; N],
) -> Result<Option<Packing<N>>, Overflow> {
    if let Err(Overflow) = bound::check_sum(ranges) {
        return Err(Overflow);
    }
    let (mut by_first, mut by_last, mut by_size) = ([0; N], [0; N], [0; N]);
    let (mut begins, mut next, mut lives) = ([0; N], [0; N], [0; N]);
    let (mut linked, mut links) = ([[0; stack::LINKS]; N], [[0; stack::LINKS]; N]);
    let (mut heights, mut ceilings, mut starts, mut ends) = ([0; N], [0; N], [0; N], [0; N]);
    let (mut spans, mut trial) = ([NO_SPAN; N], [0; N]);
    bucket_sort::by_first(ranges, &mut by_first, &mut starts, &mut begins, &mut next);
    bucket_sort::by_last(ranges, &mut by_last, &mut starts, &mut begins, &mut next);
    bucket_sort::by_size(ranges, &mut by_size, &mut starts, &mut begins, &mut next);
    let peak = match bound::peak(ranges, &by_first, &by_last) {
        Ok(peak) => peak,
        Err(Overflow) => return Err(Overflow),
    };
    let axis = bound::compress(ranges, &by_first, &by_last, &peak, &mut spans);

    let mut best = Packing { offsets: [0; N], size: u64::MAX, lower_bound: peak.bytes, peak: peak.operation };
    let mut at = 0;
    while at < attempts.len() {
        let Attempt { at_peak, short, long, rounds } = attempts[at];
        let turn = if at_peak { axis.peak } else { axis.turn };
        let stacked = Stacked { turn, short, long, small: peak.bytes / SMALL, top: peak.bytes, patience };
        let mut round = 0;
        while round < rounds && best.size > peak.bytes {
            let orders = Orders { by_first: &by_first, by_last: &by_last, by_size: &by_size, nested: None };
            let scratch = Scratch {
                begins: &mut begins,
                next: &mut next,
                lives: &mut lives,
                linked: linked.as_flattened_mut(),
                links: links.as_flattened_mut(),
                heights: &mut heights,
                ceilings: &mut ceilings,
                starts: &mut starts,
                ends: &mut ends,
            };
            let Some(size) = stack::pack(&spans, orders, axis.moments, stacked, &mut trial, scratch) else { break };
            if size < best.size {
                best.size = size;
                best.offsets = trial;
            }
            if rounds > 1 {
                bucket_sort::to_front(&mut by_size, stack::highest(&spans, &trial) as u32);
            }
            round += 1;
        }
        at += 1;
    }
    Ok(if best.size == u64::MAX { None } else { Some(best) })
}
