//! Ranks: processes that share a training step, each with a device of its own.
//!
//! All ranks run one program. They hold equal amounts of memory, so that one check holds for all of them. A rank takes `batch / ranks` samples of
//! each step, as a micro-batch does; gradients are added up over ranks.
//!
//! A tensor is sharded by elements, in the order in which they are in memory: rank r has elements `[r * s, (r + 1) * s)` of it, where
//! [`Sharding::own`] returns `s`. The last shard may be padded.

use crate::cards::Card;
use crate::number::Role;
use crate::program::encoding::{Reader, Wire, wire_enum, wire_struct};
use alloc::vec::Vec;

/// Tensors of a training step of which each rank keeps only its shard: `shard: Gradients` in `TRAIN`. Each value includes those before it.
///
/// PyTorch: `None` is `DistributedDataParallel`, `Optimizer` is `ZeroRedundancyOptimizer`, and `Parameters` is `fully_shard`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Shard {
    /// No tensors: each rank has all of them.
    #[default]
    None,
    /// Optimizer state, master copies and moving averages, as ZeRO stage 1 does.
    Optimizer,
    /// Gradients, too, as ZeRO stage 2 does. It saves memory only if gradients live until the end of the step.
    Gradients,
    /// Parameters, too, as ZeRO stage 3 does. Those of a block are gathered before it runs, forward and backward.
    Parameters,
}

impl Shard {
    /// All values, in the order of their numbers.
    pub const ALL: [Shard; 4] = [Shard::None, Shard::Optimizer, Shard::Gradients, Shard::Parameters];

    /// The names of all values, in the order of their numbers.
    pub const NAMES: [&'static str; 4] = ["None", "Optimizer", "Gradients", "Parameters"];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        Shard::NAMES[self as usize]
    }
}
wire_enum!(Shard { None, Optimizer, Gradients, Parameters });

/// The ranks of a training step, and what they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// The number of ranks: at least 1.
    pub count: u64,
    /// Tensors of which each rank keeps only its shard.
    pub shard: Shard,
    /// Most bytes of gradients in one exchange, unless one gradient alone is larger.
    pub bucket: u64,
    /// Most channels of the communication library. Each takes memory and a multiprocessor of the card.
    pub channels: u64,
    /// The fewest elements of a tensor that is sharded. Smaller ones are few bytes, and each is a message of its own.
    ///
    /// DeepSpeed: `stage3_param_persistence_threshold`.
    pub least_sharded: u64,
    /// True if batch norms use the statistics of all ranks.
    pub sync_batch_norm: bool,
}
wire_struct!(Ranks { count, shard, bucket, channels, least_sharded, sync_batch_norm });

/// The elements of a tensor that each rank has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharding {
    /// Each rank has all of it.
    #[default]
    Replicated,
    /// Each rank has all of it, padded to as many equal shards as there are ranks.
    Gathered(u64),
    /// Each rank has one of so many shards.
    Sharded(u64),
}

impl Wire for Sharding {
    fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Sharding::Replicated => 0u64.put(out),
            Sharding::Gathered(ranks) => (ranks << 1).put(out),
            Sharding::Sharded(ranks) => (ranks << 1 | 1).put(out),
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Sharding> {
        let word = u64::take(from)?;
        match (word >> 1, word & 1) {
            (0, 0) => Some(Sharding::Replicated),
            (0, _) => None,
            (ranks, 0) => Some(Sharding::Gathered(ranks)),
            (ranks, _) => Some(Sharding::Sharded(ranks)),
        }
    }
}

impl Sharding {
    /// Returns the elements in memory of a tensor that has `elements` of them as a whole. `None` if they exceed `u64`.
    pub const fn stored(self, elements: u64) -> Option<u64> {
        match self {
            Sharding::Replicated => Some(elements),
            Sharding::Gathered(ranks) => match shard_of(elements, ranks) {
                Some(shard) => shard.checked_mul(ranks),
                None => None,
            },
            Sharding::Sharded(ranks) => shard_of(elements, ranks),
        }
    }

    /// Returns the elements of a rank's own shard of a tensor that has `elements` of them: all of them if it is replicated.
    pub const fn own(self, elements: u64) -> Option<u64> {
        match self {
            Sharding::Replicated => Some(elements),
            Sharding::Gathered(ranks) | Sharding::Sharded(ranks) => shard_of(elements, ranks),
        }
    }
}

/// Elements of which a shard has a multiple. With it every shard of a gathered tensor is aligned.
const ALIGNMENT: u64 = 64;

/// Returns the elements of each of `ranks` shards of `elements` elements.
const fn shard_of(elements: u64, ranks: u64) -> Option<u64> {
    if ranks == 0 { None } else { elements.div_ceil(ranks).checked_next_multiple_of(ALIGNMENT) }
}

const MIB: u64 = 1 << 20;

/// Bytes of NCCL's buffers for a channel of a ring: LL 0.5, LL128 4.7 and Simple 4 MiB and a header at the receiver, rounded up to 10 MiB, and
/// 2 MiB at the sender. Where a peer reads, both ends have 6 MiB. Source: NCCL 2.30, `init.cc`, `transport/p2p.cc`. Trees have as much again.
const RING: u64 = 12 * MIB;

/// Bytes of NCCL's buffers for a channel and each peer of a switch that multicasts. Source: NCCL 2.30, `transport/nvls.cc`.
const MULTICAST: u64 = 2 * MIB;

/// The most peers of such a switch.
const PEERS: u64 = 8;

/// Bytes of NCCL's kernels, communicator and pools: an estimate.
const COMMUNICATOR: u64 = 64 * MIB;

impl Ranks {
    /// One rank.
    pub const ALONE: Ranks = Ranks {
        count: 1,
        shard: Shard::None,
        bucket: 32 * MIB,
        channels: 8,
        least_sharded: 65_536,
        sync_batch_norm: false,
    };

    /// The most ranks.
    pub const MOST: u64 = 1 << 16;

    /// The most channels that NCCL has. Source: NCCL 2.30, `device.h`.
    pub const MOST_CHANNELS: u64 = 64;

    /// The most tensors of one exchange.
    pub const MOST_TENSORS: usize = 128;

    /// True if there is one rank only.
    pub const fn is_alone(self) -> bool {
        self.count <= 1
    }

    /// True if each rank keeps only its shard of these tensors, or of more.
    pub const fn shards(self, what: Shard) -> bool {
        !self.is_alone() && self.shard as u8 >= what as u8 && !matches!(what, Shard::None)
    }

    /// True if batch norms exchange the statistics of their samples.
    pub const fn synchronises_norms(self) -> bool {
        !self.is_alone() && self.sync_batch_norm
    }

    /// Returns how gradients of such a parameter are kept until the end of the step.
    pub const fn of_gradient(self, role: Role, elements: u64) -> Sharding {
        self.sharding(role, elements, Shard::Gradients, Shard::Optimizer)
    }

    /// Returns how optimizer states, master copies and averages of a parameter with so many elements and this role are kept.
    pub const fn of_state(self, role: Role, elements: u64) -> Sharding {
        self.sharding(role, elements, Shard::Optimizer, Shard::Parameters)
    }

    /// Returns how a parameter with so many elements and this role is kept. Frozen ones are exchanged only if parameters are sharded.
    pub const fn of_parameter(self, role: Role, elements: u64, is_trained: bool) -> Sharding {
        let gathered = if is_trained { Shard::Optimizer } else { Shard::Parameters };
        self.sharding(role, elements, Shard::Parameters, gathered)
    }

    /// Returns the sharding of a tensor that is sharded from `sharded` on, and padded to whole shards from `gathered` on.
    const fn sharding(self, role: Role, elements: u64, sharded: Shard, gathered: Shard) -> Sharding {
        if role.coding().is_some() || matches!(role, Role::Scale) || elements < self.least_sharded {
            return Sharding::Replicated;
        }
        if self.shards(sharded) {
            Sharding::Sharded(self.count)
        } else if self.shards(gathered) {
            Sharding::Gathered(self.count)
        } else {
            Sharding::Replicated
        }
    }

    /// Returns the bytes of a card that the communication library takes besides arena and reserve, on one machine: 0 for one rank. They are a
    /// bound, since the library is limited to so many channels. `None` stands for a card of which only the memory size is known.
    pub const fn communication(self, card: Option<&Card>) -> u64 {
        if self.is_alone() {
            return 0;
        }
        // Sums over all ranks may use trees besides rings.
        let algorithms = if matches!(self.shard, Shard::None) { 2 } else { 1 };
        let peers = match card {
            Some(card) if card.has_multicast => {
                if self.count < PEERS {
                    self.count
                } else {
                    PEERS
                }
            }
            _ => 0,
        };
        COMMUNICATOR + self.channels * (RING * algorithms + MULTICAST * peers)
    }

    /// Returns the bytes that a rank sends in a step whose exchanged parameters have `bytes` bytes. It receives as many. A ring makes two passes, or
    /// three with sharded parameters.
    pub const fn sent(self, bytes: u64) -> u64 {
        let passes = if self.shards(Shard::Parameters) { 3 } else { 2 };
        (bytes as u128 * passes * (self.count as u128 - 1) / self.count as u128) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::{H100_SXM, RTX_3060};

    const fn ranks(count: u64, shard: Shard) -> Ranks {
        Ranks { count, shard, ..Ranks::ALONE }
    }

    #[test]
    fn shards_are_equal_and_hold_all_elements() {
        for elements in [65_536, 65_537, 1_000_003, 80_411_200] {
            for count in [2, 3, 4, 7, 8, 64] {
                let sharding = ranks(count, Shard::Parameters).of_parameter(Role::Weight, elements, false);
                assert_eq!(sharding, Sharding::Sharded(count));
                let shard = sharding.stored(elements).unwrap();
                assert!(shard * count >= elements && shard.is_multiple_of(64));
                assert!((shard - 64) * count < elements, "no more than the alignment is added");
                assert_eq!(Sharding::Gathered(count).stored(elements), Some(shard * count));
            }
        }
    }

    #[test]
    fn each_value_shards_what_it_names() {
        let all = |shard| {
            let ranks = ranks(4, shard);
            [
                ranks.of_state(Role::Weight, 1 << 20),
                ranks.of_gradient(Role::Weight, 1 << 20),
                ranks.of_parameter(Role::Weight, 1 << 20, true),
                ranks.of_parameter(Role::Weight, 1 << 20, false),
            ]
        };
        let (whole, padded, own) = (Sharding::Replicated, Sharding::Gathered(4), Sharding::Sharded(4));
        assert_eq!(all(Shard::None), [whole; 4]);
        assert_eq!(all(Shard::Optimizer), [own, padded, padded, whole]);
        assert_eq!(all(Shard::Gradients), [own, own, padded, whole]);
        assert_eq!(all(Shard::Parameters), [own; 4]);
        assert_eq!(ranks(1, Shard::Parameters).of_state(Role::Weight, 1 << 20), whole);
        assert_eq!(ranks(4, Shard::Parameters).of_state(Role::Weight, 65_535), whole, "small tensors stay whole");
        assert_eq!(ranks(4, Shard::Parameters).of_parameter(Role::Nf4, 1 << 20, false), whole);
    }

    #[test]
    fn communication_is_that_of_the_card() {
        let mib = |ranks: Ranks, card| ranks.communication(card) >> 20;
        assert_eq!(mib(ranks(8, Shard::Optimizer), Some(&H100_SXM)), 96 + 128 + 64);
        assert_eq!(mib(ranks(2, Shard::Optimizer), Some(&H100_SXM)), 96 + 32 + 64);
        assert_eq!(mib(ranks(8, Shard::Parameters), Some(&RTX_3060)), 96 + 64);
        assert_eq!(mib(ranks(8, Shard::None), Some(&RTX_3060)), 192 + 64);
        assert_eq!(mib(Ranks { channels: 2, ..ranks(8, Shard::None) }, None), 48 + 64);
        assert_eq!(mib(Ranks::ALONE, Some(&H100_SXM)), 0);
    }

    #[test]
    fn shardings_are_read_as_they_were_written() {
        for sharding in [Sharding::Replicated, Sharding::Gathered(8), Sharding::Sharded(8)] {
            let mut bytes = Vec::new();
            sharding.put(&mut bytes);
            assert_eq!(Sharding::take(&mut Reader::new(&bytes)), Some(sharding));
        }
        assert_eq!(Sharding::take(&mut Reader::new(&[1])), None, "a shard of none");
    }
}
