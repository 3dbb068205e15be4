//! The search for a batch, a cache or a precision that would fit.

use crate::memory::budget::{Lasting, Line, Plan, fitting_plan, lower_bound, plan_within};
use crate::memory::bytes::{element_bytes, padded, tensor_bytes};
use crate::memory::tables::{Tables, samples};
use crate::number::Precision;

/// The result of a search for a batch.
#[derive(Clone, Copy)]
pub(super) enum Found {
    /// A plan of this batch was made, and fits.
    Fits(u64),
    /// Tensors that last from step to step do not fit.
    Lasting,
    /// They do, but one sample needs an arena of at least this many bytes.
    OneSample(u64),
    /// One sample may fit, but none of the plans that were tried did.
    Unknown,
}

/// The most plans made for one answer.
const MOST_PLANS: usize = 4;

/// The number of tensors above which the packers take a tenth of a second or more.
const SEVERAL: usize = 300;

/// A number of samples above what any card has memory for. A network that fits with such a batch needs no memory for a sample.
const MOST_SAMPLES: u64 = 1 << 32;

/// Lower bounds of the arena at several batches.
struct Bounds<'a, const N: usize> {
    tables: &'a Tables<'a>,
    precision: Precision,
    lasting: Lasting,
}

impl<const N: usize> Bounds<'_, N> {
    /// Returns the lower bound of an arena for `batch` samples, in bytes; `u64::MAX` if it cannot be counted.
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

impl<const N: usize> Bounds<'_, N> {
    /// Returns the largest batch whose bound has at most `room` bytes. It is searched between a batch whose bound fits and one whose bound does
    /// not, each given with its bound.
    const fn largest(
        &self,
        [mut low, mut low_bytes]: [u64; 2],
        [mut high, mut high_bytes]: [u64; 2],
        room: u64,
    ) -> u64 {
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
            let bytes = self.arena(guess);
            if bytes <= room {
                low = guess;
                low_bytes = bytes;
            } else {
                high = guess;
                high_bytes = bytes;
            }
            steps += 1;
        }
        low
    }
}

/// Returns the most time steps that a cache can have in an arena of `room` bytes. Everything else stays unchanged. `None` if not one fits, or the
/// cache is no longer than that already. Padding is counted in full, so that it always fits.
pub(super) const fn longest_cache<const N: usize>(tables: &Tables<'_>, plan: &Plan<N>, room: u64) -> Option<u64> {
    let element = element_bytes(plan.precision);
    let (mut cache, mut step, mut padding, mut most) = (0, 0, 0, 0);
    let mut i = 0;
    while i < tables.caches.len() {
        let [role, row, steps, count] = tables.caches[i];
        i += 1;
        // Entries that do not grow with the time steps are counted with the rest.
        if steps == 0 {
            continue;
        }
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
    }
    let others = plan.arena() - cache + padding;
    if step == 0 || others >= room {
        return None;
    }
    let steps = (room - others) / step;
    if steps > 0 && steps < most { Some(steps) } else { None }
}

/// Returns the largest batch below that of `plan` whose arena is at most `room` bytes.
///
/// Looks for the largest batch whose lower bound fits, then makes plans from there downwards. Bytes need not grow
/// with every sample (padding), so a larger batch may exist; the one returned fits.
///
/// If a batch is split, only multiples of the number of its parts are searched.
pub(super) const fn largest_batch<const N: usize>(tables: &Tables<'_>, plan: &Plan<N>, room: u64) -> Found {
    let (parts, tables) = (tables.parts, &tables.of_part());
    if plan.start(Line::BatchIo) > room {
        return Found::Lasting;
    }
    let precision = plan.precision;
    let Ok(lasting) = Lasting::new(tables, 1, precision) else { return Found::Unknown };
    let bounds: Bounds<'_, N> = Bounds { tables, precision, lasting };
    let low_bytes = bounds.arena(1);
    if low_bytes > room {
        return Found::OneSample(low_bytes);
    }
    let high = samples(plan.batch, parts);
    if high == 1 {
        // The bound of one sample fits, its plan does not.
        return Found::OneSample(plan.arena());
    }
    let high_bytes = plan.budget.lower_bound;
    let (low, low_bytes) = if high_bytes <= room {
        // Only the plan of this batch is too large: the batch below is worth a plan.
        (high - 1, bounds.arena(high - 1))
    } else {
        (1, low_bytes)
    };
    let mut batch = bounds.largest([low, low_bytes], [high, high_bytes], room);
    let mut plans = 0;
    while plans < MOST_PLANS && batch > 0 {
        let tried: Plan<N> = fitting_plan(tables, batch, precision, room);
        if tried.is_packed && tried.arena() <= room {
            return Found::Fits(batch.saturating_mul(parts));
        }
        // The share of the batch by which the plan is too large, at least one sample.
        let smaller =
            batch as u128 * room as u128 / if tried.arena() > room { tried.arena() as u128 } else { u128::MAX };
        batch = if smaller < batch as u128 { smaller as u64 } else { batch - 1 };
        plans += 1;
    }
    Found::Unknown
}

/// Returns the largest batch whose plan has an arena of at most `room` bytes, for `batch: Largest`. 0 if not even one sample fits, or nothing can
/// be counted.
///
/// It is the largest batch whose lower bound fits. If its plan does not, it is the first one below whose plan fits. Many tensors take long to
/// pack: then the batch falls by the share by which its plan is too large, until a plan fits. If a batch is split, it is a multiple of their
/// number.
pub(super) const fn largest_planned<const N: usize>(tables: &Tables<'_>, precision: Precision, room: u64) -> u64 {
    let (parts, tables) = (tables.parts, &tables.of_part());
    let Ok(lasting) = Lasting::new(tables, 1, precision) else { return 0 };
    let bounds: Bounds<'_, N> = Bounds { tables, precision, lasting };
    let (mut low, mut low_bytes) = (1, bounds.arena(1));
    if low_bytes > room {
        return 0;
    }
    let (mut high, mut high_bytes) = (2, bounds.arena(2));
    while high_bytes <= room && high < MOST_SAMPLES {
        (low, low_bytes) = (high, high_bytes);
        high *= 2;
        high_bytes = bounds.arena(high);
    }
    let mut batch = if high_bytes <= room { high } else { bounds.largest([low, low_bytes], [high, high_bytes], room) };
    let mut plans = 0;
    while batch > 0 {
        let plan: Plan<N> = plan_within(tables, batch, precision, room);
        if plan.is_packed && plan.arena() <= room {
            break;
        }
        let below = batch - 1;
        batch = if N <= SEVERAL {
            below
        } else if plans < MOST_PLANS && plan.arena() > room {
            let share = batch as u128 * room as u128 / plan.arena() as u128;
            if share < below as u128 { share as u64 } else { below }
        } else {
            batch / 2
        };
        plans += 1;
    }
    batch.saturating_mul(parts)
}

/// True if the plan at another precision fits into `room` bytes.
pub(super) const fn precision_fits<const N: usize>(
    tables: &Tables<'_>,
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
