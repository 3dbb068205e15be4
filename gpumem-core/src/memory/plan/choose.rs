//! The choice of a packing: one that the macro found, one of the packers', or none.

use crate::memory::bytes::{Largest, MOST_BYTES, PlanError, fill, padded};
use crate::memory::plan::pack::{pack_patiently, pack_quickly};
use crate::memory::plan::{LiveRange, Overflow, Packing, replay};
use crate::memory::tables::{Order, Tables};

/// The number of tensors above which the packers take a second or more.
pub const MANY: usize = 1500;

/// The number of tensors above which replaying a packing takes half a second. Then nothing is tried that may be in vain.
pub(crate) const TOO_MANY: usize = 4000;

/// The number of tensors above which a packing within one part in [`CLOSE`] of the lower bound is good enough. The packers would gain next to
/// nothing.
const SEVERAL: usize = 300;

/// The divisor of the lower bound that is used with [`SEVERAL`].
const CLOSE: u64 = 200;

/// The demand on a packing.
#[derive(Clone, Copy)]
pub(in crate::memory) struct Wanted {
    /// The most bytes that it may have.
    pub(in crate::memory) limit: u64,
    /// True if the first packing within `limit` will do, even if a smaller one exists.
    pub(in crate::memory) is_alternative: bool,
}

/// Returns a packing of the tensors, and true if it has offsets. Otherwise its size is the lower bound, and there are no offsets.
pub(in crate::memory) const fn packed<const N: usize>(
    tables: &Tables<'_>,
    largest: &Largest<'_>,
    wanted: Wanted,
) -> Result<(Packing<N>, bool), PlanError> {
    let Some((lower_bound, peak)) = tables.transients.peak(largest.bytes) else {
        return Err(PlanError::Overflow);
    };
    let unpacked = Packing { offsets: [0; N], size: lower_bound, lower_bound, peak };
    let Wanted { limit, is_alternative } = wanted;
    // An alternative that cannot fit is not packed. A plan that will be refused is packed if that is cheap, so that the refusal has its exact
    // size.
    let can_fit = lower_bound <= limit;
    let replays = can_fit || (!is_alternative && N <= TOO_MANY);
    let packs = can_fit && (!is_alternative || N <= MANY);
    if !replays {
        return Ok((unpacked, false));
    }
    if let Some(packing) = placed(tables.transients.orders, largest.bytes, &unpacked) {
        return Ok((packing, true));
    }
    let mut ranges = [LiveRange { bytes: 0, first: 0, last: 0 }; N];
    match fill(tables, largest.bytes, &mut ranges) {
        Ok(()) => {}
        Err(error) => return Err(error),
    }
    let mut packing = unpacked;
    // No sum of offsets can overflow.
    let is_safe = padded(largest.largest) as u128 * N as u128 <= MOST_BYTES as u128;
    let wanted = Wanted { limit: if can_fit { limit } else { u64::MAX }, is_alternative };
    let is_replayed = is_safe && !tables.transients.orders.is_empty();
    if is_replayed && replayed(tables, &ranges, &mut packing, wanted) {
        return Ok((packing, true));
    }
    if !packs {
        return Ok((unpacked, false));
    }
    match pack_quickly(&ranges) {
        Ok(Some(packed)) if !is_replayed || packed.size <= packing.size => Ok((packed, true)),
        Ok(_) if is_replayed => Ok((packing, true)),
        Ok(_) => match pack_patiently(&ranges) {
            Ok(packed) => Ok((packed, true)),
            Err(Overflow) => Err(PlanError::Overflow),
        },
        Err(Overflow) => Err(PlanError::Overflow),
    }
}

/// Returns the macro's packing, if tensors have the bytes that they had there; `None` otherwise.
const fn placed<const N: usize>(orders: &[Order<'_>], bytes: &[u64], unpacked: &Packing<N>) -> Option<Packing<N>> {
    let mut i = 0;
    while i < orders.len() {
        let Order { size, lower_bound, offsets, bytes: known, .. } = orders[i];
        if let Some(offsets) = offsets.first_chunk::<N>()
            && offsets.len() == N
            && lower_bound == unpacked.lower_bound
            && is_equal(bytes, known)
        {
            return Some(Packing { offsets: *offsets, size, ..*unpacked });
        }
        i += 1;
    }
    None
}

const fn is_equal(one: &[u64], other: &[u64]) -> bool {
    let mut i = 0;
    while i < one.len() && i < other.len() {
        if one[i] != other[i] {
            return false;
        }
        i += 1;
    }
    one.len() == other.len()
}

/// Replays the orders that the macro found, of which there is at least one, and keeps the smallest packing. Returns true if it can hardly be
/// improved or, for an alternative, if it fits.
const fn replayed<const N: usize>(
    tables: &Tables<'_>,
    ranges: &[LiveRange; N],
    packing: &mut Packing<N>,
    wanted: Wanted,
) -> bool {
    let orders = tables.transients.orders;
    let bound = packing.lower_bound;
    let close = if N > SEVERAL { bound + bound / CLOSE } else { bound };
    let (mut best, mut smallest, mut is_good) = (0, u64::MAX, false);
    let mut i = 0;
    while i < orders.len() {
        let size = replay(orders[i].entries, ranges, &mut packing.offsets);
        if size < smallest {
            (best, smallest) = (i, size);
        }
        // Equal figures: the tensors are those that the macro packed, and the packers would do no better than it did.
        let is_same = size == orders[i].size && bound == orders[i].lower_bound;
        let fits = size <= wanted.limit;
        if is_same || (fits && (size == bound || wanted.is_alternative)) {
            packing.size = size;
            return true;
        }
        let is_as_good = size as u128 * orders[i].lower_bound as u128 <= orders[i].size as u128 * close as u128;
        is_good = is_good || (fits && is_as_good);
        i += 1;
    }
    packing.size = smallest;
    if best + 1 < orders.len() {
        replay(orders[best].entries, ranges, &mut packing.offsets);
    }
    is_good
}
