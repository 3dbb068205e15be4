//! The bytes of one tensor, and of all that live inside a step.

use crate::memory::plan::{ALIGNMENT, LiveRange};
use crate::memory::tables::{BatchTensor, Size, Tables, Workspaces, unpack};
use crate::number::{Precision, Role};

/// The reason why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// The batch is 0.
    ZeroBatch,
    /// The step has no operation.
    EmptyNetwork,
    /// A sum of bytes does not fit 63 bits.
    Overflow,
    /// The step's tables contradict each other: a role without a number, a table of another length.
    Malformed,
}

impl core::fmt::Display for PlanError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            PlanError::ZeroBatch => "the batch is 0",
            PlanError::EmptyNetwork => "the network is empty",
            PlanError::Overflow => "its bytes do not fit 63 bits",
            PlanError::Malformed => "its tables contradict each other",
        })
    }
}

impl core::error::Error for PlanError {}

/// The largest arena in bytes: adding any card's reserve stays below 2^64.
pub(super) const MOST_BYTES: u64 = u64::MAX / 2;

/// Returns the bytes that a tensor of `bytes` bytes takes in an arena: the next multiple of [`ALIGNMENT`].
pub const fn padded(bytes: u64) -> u64 {
    match bytes.checked_next_multiple_of(ALIGNMENT) {
        Some(padded) => padded,
        // Never reached for a tensor of a plan: those are below 2^62 bytes.
        None => u64::MAX,
    }
}

/// The most elements of one tensor: 4 bytes each and padding stay far below 2^64.
const MOST_ELEMENTS: u64 = 1 << 59;

const ROLES: usize = Role::ALL.len();

/// Returns the bytes of an element, by role.
pub(super) const fn element_bytes(precision: Precision) -> [u64; ROLES] {
    let mut bytes = [0; ROLES];
    let mut i = 0;
    while i < ROLES {
        bytes[i] = Role::ALL[i].bytes(precision);
        i += 1;
    }
    bytes
}

/// Returns the exact bytes of a tensor of `fixed + per_sample * batch` elements.
pub(super) const fn tensor_bytes(
    element: &[u64; ROLES],
    role: u64,
    fixed: u64,
    per_sample: u64,
    batch: u64,
) -> Result<u64, PlanError> {
    if role >= ROLES as u64 {
        return Err(PlanError::Malformed);
    }
    let elements = fixed as u128 + per_sample as u128 * batch as u128;
    if elements > MOST_ELEMENTS as u128 {
        return Err(PlanError::Overflow);
    }
    Ok(elements as u64 * element[role as usize])
}

/// Returns the exact bytes of a tensor of this size. Workspaces are limited by `workspaces`.
pub(super) const fn exact_bytes(
    element: &[u64; ROLES],
    size: Size,
    batch: u64,
    workspaces: &Workspaces,
) -> Result<u64, PlanError> {
    let [role, fixed, per_sample, gaps, ..] = size;
    // Only in 16-bit formats do rows have a pitch.
    let gaps = if role < ROLES as u64 && element[role as usize] < 4 { gaps } else { 0 };
    match tensor_bytes(element, role, fixed, per_sample.saturating_add(gaps), batch) {
        Ok(bytes) => Ok(workspaces.cap(Role::ALL[role as usize], bytes)),
        Err(error) => Err(error),
    }
}

/// Returns the live ranges of a step's transient tensors at `batch` samples, padded to [`ALIGNMENT`].
pub const fn live_ranges<const N: usize>(
    tables: &Tables<'_>,
    batch: u64,
    precision: Precision,
) -> Result<[LiveRange; N], PlanError> {
    let mut ranges = [LiveRange { bytes: 0, first: 0, last: 0 }; N];
    match largest(tables, batch, precision, &mut [0; N]) {
        Ok(largest) => match fill(tables, largest.bytes, &mut ranges) {
            Ok(()) => Ok(ranges),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Writes the live ranges of tensors whose sizes have these padded bytes.
pub(super) const fn fill(tables: &Tables<'_>, bytes: &[u64], ranges: &mut [LiveRange]) -> Result<(), PlanError> {
    let lives = tables.transients.lives;
    if lives.len() != ranges.len() {
        return Err(PlanError::Malformed);
    }
    let mut i = 0;
    while i < lives.len() {
        let (size, first, last) = unpack(lives[i]);
        if size >= bytes.len() || last as u64 >= tables.operations || first > last {
            return Err(PlanError::Malformed);
        }
        ranges[i] = LiveRange { bytes: bytes[size], first, last };
        i += 1;
    }
    Ok(())
}

/// The largest transient tensors of a step, without padding.
#[derive(Clone, Copy)]
pub(super) struct Largest<'a> {
    /// Padded bytes of each size.
    pub(super) bytes: &'a [u64],
    pub(super) index: u32,
    pub(super) largest: u64,
    pub(super) workspace: u64,
}

/// Fills `bytes` with the padded bytes of each size and finds the largest tensors. There are at most as many sizes as tensors.
pub(super) const fn largest<'a>(
    tables: &Tables<'_>,
    batch: u64,
    precision: Precision,
    bytes: &'a mut [u64],
) -> Result<Largest<'a>, PlanError> {
    let (element, samples) = (element_bytes(precision), tables.samples(batch));
    let sizes = tables.transients.sizes;
    if tables.transients.lives.len() != bytes.len() || sizes.len() > bytes.len() {
        return Err(PlanError::Malformed);
    }
    let (mut index, mut largest, mut workspace) = (0, 0, 0);
    let mut i = 0;
    while i < sizes.len() {
        let [.., tensor, is_workspace] = sizes[i];
        let exact = match exact_bytes(&element, sizes[i], samples, &tables.workspaces) {
            Ok(bytes) => bytes,
            Err(error) => return Err(error),
        };
        if exact > largest {
            (index, largest) = (tensor as u32, exact);
        }
        if exact > workspace && is_workspace == 1 {
            workspace = exact;
        }
        bytes[i] = padded(exact);
        i += 1;
    }
    Ok(Largest { bytes: bytes.split_at(sizes.len()).0, index, largest, workspace })
}

/// Returns the peak in bytes at another batch or precision, with `N` words of scratch memory. No packing is smaller.
pub(crate) const fn lower_bound<const N: usize>(
    tables: &Tables<'_>,
    batch: u64,
    precision: Precision,
) -> Result<u64, PlanError> {
    match largest(tables, batch, precision, &mut [0; N]) {
        Ok(largest) => match tables.transients.peak(largest.bytes) {
            Some((bytes, _)) => Ok(bytes),
            None => Err(PlanError::Overflow),
        },
        Err(error) => Err(error),
    }
}

/// Exact and padded bytes of one part of the arena.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    pub(super) exact: u64,
    pub(super) padded: u64,
}

impl Bytes {
    /// Adds `times` tensors of `bytes` bytes.
    pub(super) const fn add(&mut self, bytes: u64, times: u64) -> Result<(), PlanError> {
        // The padded sum is the larger one: if it fits, so does the other.
        match padded(bytes).checked_mul(times) {
            Some(more) => match self.padded.checked_add(more) {
                Some(sum) if sum <= MOST_BYTES => {
                    self.padded = sum;
                    self.exact += bytes * times;
                    Ok(())
                }
                _ => Err(PlanError::Overflow),
            },
            None => Err(PlanError::Overflow),
        }
    }
}

/// Returns the bytes of the cache entries of a program.
pub(super) const fn cache_bytes(tables: &Tables<'_>, samples: u64, precision: Precision) -> Result<Bytes, PlanError> {
    let element = element_bytes(precision);
    let mut sum = Bytes { exact: 0, padded: 0 };
    let mut i = 0;
    while i < tables.caches.len() {
        let [role, row, steps, count] = tables.caches[i];
        let Some(each) = row.checked_mul(if steps > 0 { steps } else { 1 }) else { return Err(PlanError::Overflow) };
        let added = match tensor_bytes(&element, role, 0, each, samples) {
            Ok(bytes) => sum.add(bytes, count),
            Err(error) => Err(error),
        };
        match added {
            Ok(()) => {}
            Err(error) => return Err(error),
        }
        i += 1;
    }
    Ok(sum)
}

/// Returns the bytes of tensors that exist `times` times for each sample.
pub(super) const fn batch_bytes(
    tensors: &[BatchTensor],
    times: u64,
    samples: u64,
    precision: Precision,
) -> Result<Bytes, PlanError> {
    let element = element_bytes(precision);
    let mut sum = Bytes { exact: 0, padded: 0 };
    let mut i = 0;
    while i < tensors.len() {
        let [role, per_sample] = tensors[i];
        let added = match tensor_bytes(&element, role, 0, per_sample, samples) {
            Ok(bytes) => sum.add(bytes, times),
            Err(error) => Err(error),
        };
        match added {
            Ok(()) => {}
            Err(error) => return Err(error),
        }
        i += 1;
    }
    Ok(sum)
}
