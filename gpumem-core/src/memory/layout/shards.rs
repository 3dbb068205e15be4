//! Tensors of which a rank has a shard in its arena. The host has all of their elements.
//!
//! A backend reads and writes whole tensors at the offset of the shard: it keeps the rank's own part of what it is given, and gathers the parts of
//! all ranks for what it returns.

use crate::error::Error;
use crate::memory::place::Placed;
use crate::number::Precision;
use crate::program::{Class, Tensor};
use crate::train::ranks::Sharding;
use alloc::collections::BTreeMap;
use core::ops::Range;

/// A rank's shard of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Bytes of the whole tensor: the shards of all ranks, one after the other, without the padding at the end.
    pub whole: usize,
    /// Bytes of a shard, with padding.
    pub bytes: usize,
}

impl Shard {
    /// Returns the bytes of the whole tensor that are in the shard of a rank. Empty if all of its elements are padding.
    pub fn of(self, rank: u64) -> Range<usize> {
        let first = usize::try_from(rank).unwrap_or(usize::MAX).saturating_mul(self.bytes).min(self.whole);
        first..first.saturating_add(self.bytes).min(self.whole)
    }
}

/// The shards of a network's programs, by their offsets in the arena.
#[derive(Clone, Debug, Default)]
pub struct Shards {
    all: BTreeMap<u64, Shard>,
}

impl Shards {
    /// Returns the shards of these programs that last from step to step, or until the end of a step.
    ///
    /// # Errors
    /// A tensor whose bytes exceed 64 bits.
    pub fn new<'a>(programs: impl IntoIterator<Item = &'a Placed>, precision: Precision) -> Result<Shards, Error> {
        let mut all = BTreeMap::new();
        for placed in programs {
            let tensors = placed.program.tensors.iter().zip(placed.offsets.iter().zip(&placed.masters));
            for (tensor, (&offset, &master)) in tensors {
                if matches!(tensor.class, Class::Transient | Class::Host) || tensor.sharding == Sharding::Replicated {
                    continue;
                }
                let damaged = Error::Damaged("a tensor's size exceeds 64 bits");
                let width = tensor.role.bytes(precision);
                if matches!(tensor.sharding, Sharding::Sharded(_)) {
                    all.insert(offset, shard(tensor, width).ok_or(damaged.clone())?);
                }
                if let (Some(master), Some(format)) = (master, tensor.role.master(precision)) {
                    all.insert(master, shard(tensor, format.bytes()).ok_or(damaged)?);
                }
            }
        }
        Ok(Shards { all })
    }

    /// Returns the shard at `offset`, of a tensor that has `length` bytes as a whole. `None` if all of the tensor is there.
    ///
    /// # Errors
    /// A part of a tensor that is sharded.
    pub fn find(&self, offset: u64, length: usize) -> Result<Option<Shard>, Error> {
        match self.all.get(&offset) {
            Some(shard) if shard.whole != length => Err(Error::Damaged("a sharded tensor is read or written in part")),
            found => Ok(found.copied()),
        }
    }
}

/// Returns the shard of a tensor with elements of `width` bytes.
fn shard(tensor: &Tensor, width: u64) -> Option<Shard> {
    let bytes = |elements: Option<u64>| usize::try_from(elements?.checked_mul(width)?).ok();
    Some(Shard { whole: bytes(tensor.unsharded())?, bytes: bytes(tensor.own_shard())? })
}

#[cfg(test)]
mod tests {
    use super::Shard;

    #[test]
    fn shards_follow_each_other_and_end_with_the_tensor() {
        let shard = Shard { whole: 1000, bytes: 512 };
        assert_eq!([0, 1, 2, u64::MAX].map(|rank| shard.of(rank)), [0..512, 512..1000, 1000..1000, 1000..1000]);
    }
}
