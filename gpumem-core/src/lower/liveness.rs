//! Live ranges and live bytes: the one native definition of each.
//!
//! Three others have their reasons. Const evaluation has no iterators ([`live_ranges`](crate::memory::live_ranges) and the lower bound of packers),
//! and the check of packings ([`verify`](crate::memory::plan)) shares nothing with what it checks. The search for a backward order counts
//! tensors as they come and go, since it tries one piece at a time.

use crate::number::{Half, Precision};
use crate::program::{Class, Operation, Tensor, TensorId};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{AddAssign, SubAssign};

/// The first and the last operation index at which a tensor is needed.
pub(in crate::lower) type LiveRange = [usize; 2];

/// Returns the live range of each of `count` tensors. Results are read after the last operation. `None` for a tensor that nothing needs.
pub(in crate::lower) fn ranges(
    operations: &[Operation],
    count: usize,
    results: impl IntoIterator<Item = TensorId>,
) -> Vec<Option<LiveRange>> {
    let mut ranges: Vec<Option<LiveRange>> = vec![None; count];
    for (at, operation) in operations.iter().enumerate() {
        operation.tensors().for_each(|id| ranges[id as usize].get_or_insert([at, at])[1] = at);
    }
    // A result that no operation touches is there from the beginning.
    let end = operations.len().saturating_sub(1);
    results.into_iter().for_each(|id| ranges[id as usize].get_or_insert([0, end])[1] = end);
    ranges
}

/// Returns the live bytes at each of `count` operation indices, from live ranges with their bytes.
pub(in crate::lower) fn live_bytes<B>(count: usize, all: impl IntoIterator<Item = (LiveRange, B)>) -> Vec<B>
where
    B: Copy + Default + AddAssign + SubAssign,
{
    // The bytes that begin at an index, less those that end at the one before it.
    let mut changes = vec![B::default(); count + 1];
    for ([first, last], bytes) in all {
        changes[first] += bytes;
        changes[last + 1] -= bytes;
    }
    let mut live = B::default();
    for change in &mut changes {
        live += *change;
        *change = live;
    }
    changes.truncate(count);
    changes
}

/// The formats that between them give elements of every role all the sizes that they can have.
pub(in crate::lower) const MODELS: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::Mixed(Half::Bf16)];

/// The live bytes at an operation index: those of each sample, and those that do not depend on the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::lower) struct Load {
    pub(in crate::lower) each: i128,
    pub(in crate::lower) once: i128,
}

impl Load {
    pub(in crate::lower) fn plus(self, other: Load) -> Load {
        Load { each: self.each + other.each, once: self.once + other.once }
    }

    pub(in crate::lower) fn minus(self, other: Load) -> Load {
        Load { each: self.each - other.each, once: self.once - other.once }
    }

    /// Returns the bytes at a batch of one sample.
    pub(in crate::lower) fn of_one(self) -> i128 {
        self.each + self.once
    }
}

impl AddAssign for Load {
    fn add_assign(&mut self, other: Load) {
        *self = self.plus(other);
    }
}

impl SubAssign for Load {
    fn sub_assign(&mut self, other: Load) {
        *self = self.minus(other);
    }
}

/// Returns the bytes of a tensor for each sample, or in all if it is not batched. Scratch bytes that do not depend on the batch (`once`) are not
/// counted.
pub(in crate::lower) fn bytes(tensor: &Tensor, model: Precision) -> i128 {
    i128::from(tensor.stored_of_each().unwrap_or(u64::MAX)) * i128::from(tensor.role.bytes(model))
}

/// Returns the live bytes that a tensor adds in a number format.
pub(in crate::lower) fn load(tensor: &Tensor, model: Precision) -> Load {
    let (size, once) = (bytes(tensor, model), i128::from(tensor.once) * i128::from(tensor.role.bytes(model)));
    if tensor.batched { Load { each: size, once } } else { Load { each: 0, once: size + once } }
}

/// Returns the live bytes at each operation index, without scratch memory that may be limited. `room` bytes are added for each tensor.
pub(in crate::lower) fn loads(
    tensors: &[Tensor],
    ranges: &[Option<LiveRange>],
    count: usize,
    model: Precision,
    room: i128,
) -> Vec<Load> {
    let all = tensors.iter().zip(ranges).filter_map(|(tensor, range)| {
        let counts = tensor.class == Class::Transient && !tensor.role.is_workspace();
        let load = || load(tensor, model).plus(Load { each: 0, once: room });
        range.filter(|_| counts).map(|range| (range, load()))
    });
    live_bytes(count, all)
}

/// Returns the peak of the bytes that each sample takes, in each number format.
pub(in crate::lower) fn most_of_sample(operations: &[Operation], tensors: &[Tensor]) -> [i128; MODELS.len()] {
    let ranges = ranges(operations, tensors.len(), []);
    let each = |model| loads(tensors, &ranges, operations.len(), model, 0).into_iter().map(|load| load.each);
    MODELS.map(|model| each(model).max().unwrap_or(0))
}
