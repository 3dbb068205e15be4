//! The search for what would fit.

use crate::memory::budget::{Lasting, Line, Plan, fitting_plan, lower_bound};
use crate::memory::bytes::{element_bytes, padded, tensor_bytes};
use crate::memory::tables::Tables;
use crate::number::Precision;

/// What the search for a batch found.
#[derive(Clone, Copy)]
pub(super) enum Search {
    /// A plan of this batch was made, and fits.
    Fits(u64),
    /// What lasts from step to step does not fit.
    Lasting,
    /// It does, but one sample needs an arena of at least this many bytes.
    OneSample(u64),
    /// One sample may fit, but none of the plans that were tried did.
    Unknown,
}

/// The most plans made for one answer.
const MOST_PLANS: usize = 4;

/// Lower bounds at several batches.
struct Bounds<'a, const N: usize> {
    tables: &'a Tables,
    precision: Precision,
    lasting: Lasting,
}

impl<const N: usize> Bounds<'_, N> {
    /// Bytes that an arena for `batch` samples has at least. What cannot be counted counts as the largest number.
    const fn arena(&self, batch: u64) -> u64 {
        let activations = lower_bound::<N>(self.tables, batch, self.precision);
        match (self.lasting.at_batch(self.tables, batch, self.precision), activations) {
            (Ok(lasting), Ok(activations)) => match lasting.arena(activations) {
                Ok(arena) => arena,
                Err(_) => u64::MAX,
            },
            _ => u64::MAX,
        }
    }
}

/// The most steps that a cache can have in an arena of at most `room` bytes, everything else being as it is, if it is not as long
/// already. Padding is counted in full, so that it always fits.
pub(super) const fn longest_cache<const N: usize>(tables: &Tables, plan: &Plan<N>, room: u64) -> Option<u64> {
    let element = element_bytes(plan.precision);
    let (mut cache, mut step, mut padding, mut most) = (0, 0, 0, 0);
    let mut i = 0;
    while i < tables.caches.len() {
        let [role, row, steps, count] = tables.caches[i];
        let (Ok(whole), Ok(each)) = (
            tensor_bytes(&element, role, 0, row * steps, plan.batch),
            tensor_bytes(&element, role, 0, row, plan.batch),
        ) else {
            return None;
        };
        cache += padded(whole) * count;
        step += each * count;
        padding += padded(1) * count;
        most = steps;
        i += 1;
    }
    let others = plan.arena() - cache + padding;
    if step == 0 || others >= room {
        return None;
    }
    let steps = (room - others) / step;
    if steps > 0 && steps < most { Some(steps) } else { None }
}

/// The largest batch below that of `plan` whose arena is at most `room` bytes.
///
/// Looks for the largest batch whose lower bound fits, then makes plans from there downwards. Bytes need not grow
/// with every sample (padding), so a larger batch may exist; the one returned fits.
pub(super) const fn largest_batch<const N: usize>(tables: &Tables, plan: &Plan<N>, room: u64) -> Search {
    if plan.start(Line::BatchIo) > room {
        return Search::Lasting;
    }
    let precision = plan.precision;
    let Ok(lasting) = Lasting::new(tables, 1, precision) else { return Search::Unknown };
    let bounds: Bounds<'_, N> = Bounds { tables, precision, lasting };
    let mut low = 1;
    let mut low_bytes = bounds.arena(1);
    if low_bytes > room {
        return Search::OneSample(low_bytes);
    }
    let mut high = plan.batch;
    if high == 1 {
        // The bound of one sample fits, its plan does not.
        return Search::OneSample(plan.arena());
    }
    let mut high_bytes = plan.budget.lower_bound;
    if high_bytes <= room {
        // Only the plan of this batch is too large: the one below is worth a plan.
        low = high - 1;
        low_bytes = bounds.arena(low);
    }
    // Bytes are nearly linear in the batch: a straight line between both ends usually hits, and the batch above it then
    // shows that it did. Halving keeps the number of steps small where it does not.
    let mut steps = 0;
    while high - low > 1 {
        let guess = if steps % 3 == 2 || high_bytes <= low_bytes {
            low + (high - low) / 2
        } else if steps % 3 == 1 {
            low + 1
        } else {
            let share = (room - low_bytes) as u128 * (high - low) as u128 / (high_bytes - low_bytes) as u128;
            low + if share < 1 { 1 } else { share as u64 }
        };
        let guess = if guess < high { guess } else { high - 1 };
        let bytes = bounds.arena(guess);
        if bytes <= room {
            low = guess;
            low_bytes = bytes;
        } else {
            high = guess;
            high_bytes = bytes;
        }
        steps += 1;
    }

    let mut batch = low;
    let mut plans = 0;
    while plans < MOST_PLANS && batch > 0 {
        let tried: Plan<N> = fitting_plan(tables, batch, precision, room);
        if tried.is_packed && tried.arena() <= room {
            return Search::Fits(batch);
        }
        // The share of the batch by which the plan is too large, at least one sample.
        let smaller =
            batch as u128 * room as u128 / if tried.arena() > room { tried.arena() as u128 } else { u128::MAX };
        batch = if smaller < batch as u128 { smaller as u64 } else { batch - 1 };
        plans += 1;
    }
    Search::Unknown
}

/// Whether the plan at another precision fits into `room` bytes.
pub(super) const fn precision_fits<const N: usize>(
    tables: &Tables,
    batch: u64,
    precision: Precision,
    room: u64,
) -> bool {
    let Ok(lasting) = Lasting::new(tables, batch, precision) else { return false };
    let bounds: Bounds<'_, N> = Bounds { tables, precision, lasting };
    if bounds.arena(batch) > room {
        return false;
    }
    let plan: Plan<N> = fitting_plan(tables, batch, precision, room);
    plan.is_packed && plan.arena() <= room
}
