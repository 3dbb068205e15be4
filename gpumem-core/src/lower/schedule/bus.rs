//! A model of the bus between a card and its host: which tensors can leave the arena and be back in time.
//!
//! Input: when operations begin, how long copies take, and which tensors nothing touches for a while. Output: the tensors that can be in host
//! memory in between, and the operations at which their copies end or begin. In each direction copies run one after the other. No operation waits
//! for a copy. Cost: a sort of the tensors, and a binary search for each.

use crate::lower::sizes::Sizes;
use crate::memory::tables::Workspaces;
use crate::number::Precision;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The bytes that a card moves in its memory while one byte crosses the bus: 900 GB/s to 25 GB/s. Cards have 10 to 130.
pub const BUS: u64 = 36;

/// The samples of the step whose time is modelled. There, weights matter little compared with activations, which leaves the least time for
/// copies.
pub(super) const SAMPLES: u64 = 64;

/// The divisor of the peak from which on a tensor is worth a copy. With smaller ones there would be many copies, each with a wait.
pub(super) const LEAST: u64 = 256;

/// Returns the sizes of the model: 16-bit numbers, with which operations leave the least time for copies.
pub(super) fn sizes() -> Sizes {
    Sizes::new(SAMPLES, Precision::Bf16, Workspaces::UNLIMITED)
}

/// The operations between the forward and the backward pass, from the first of the loss to the last, both included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) first: usize,
    pub(super) last: usize,
}

/// A tensor that nothing touches for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) tensor: u32,
    /// The last operation of the forward pass that touches it.
    pub(super) last: usize,
    /// The first one of the backward pass, which reads it.
    pub(super) next: usize,
}

/// The times of operations and copies, in floating-point operations that take as long.
pub(super) struct Clock {
    /// The time at which each operation begins, and that at which the last one ends.
    begins: Vec<u128>,
    /// The time that each tensor takes on the bus.
    copies: Vec<u128>,
}

/// A tensor that is in host memory for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    pub(super) gap: Gap,
    /// The first operation after its copy to the host.
    pub(super) left: usize,
    /// The operation before which its copy back begins.
    pub(super) returning: usize,
}

impl Clock {
    /// Returns the clock of operations with these costs. `moves` are the costs of moving each tensor once in the memory of a card.
    pub(super) fn new(costs: impl Iterator<Item = u64>, moves: impl Iterator<Item = u64>) -> Clock {
        let mut begins = vec![0];
        let mut time = 0;
        for cost in costs {
            time += u128::from(cost);
            begins.push(time);
        }
        Clock { begins, copies: moves.map(|cost| u128::from(cost) * u128::from(BUS)).collect() }
    }

    /// Returns the time from the beginning to that of an operation.
    pub(super) fn begin(&self, at: usize) -> u128 {
        self.begins[at]
    }

    /// Returns the tensors that can leave and return in time, by their first read in the backward pass, the earliest first. Those that the forward
    /// pass finishes with first are away longest, and leave first.
    pub(super) fn round_trips(&self, mut gaps: Vec<Gap>, turn: Turn) -> Vec<RoundTrip> {
        let Clock { begins, copies } = self;
        gaps.sort_by_key(|gap| (gap.last, gap.tensor));
        let mut free = 0;
        let mut leaving: Vec<(Gap, usize)> = Vec::new();
        for gap in gaps {
            let end = begins[gap.last + 1].max(free) + copies[gap.tensor as usize];
            if end <= begins[turn.first] {
                free = end;
                leaving.push((gap, begins.partition_point(|&begin| begin < end).max(gap.last + 1)));
            }
        }
        // Copies back are planned from the other end: the tensor that is read last returns last.
        leaving.sort_by_key(|(gap, _)| Reverse((gap.next, gap.tensor)));
        let mut free = u128::MAX;
        let mut away: Vec<RoundTrip> = Vec::new();
        for (gap, left) in leaving {
            let begin = begins[gap.next].min(free).checked_sub(copies[gap.tensor as usize]);
            let Some(begin) = begin.filter(|&begin| begin >= begins[turn.last + 1]) else { continue };
            free = begin;
            let returning = begins.partition_point(|&other| other <= begin) - 1;
            away.push(RoundTrip { gap, left, returning: returning.min(gap.next) });
        }
        away.reverse();
        away
    }

    /// Adds gaps to `leaving` as long as all of them can leave before the loss. `candidates` are tried in their order.
    pub(super) fn add_in_time(&self, leaving: &mut Vec<Gap>, candidates: impl Iterator<Item = Gap>, turn: Turn) {
        for gap in candidates {
            let at = leaving.partition_point(|other| (other.last, other.tensor) < (gap.last, gap.tensor));
            leaving.insert(at, gap);
            let end = leaving
                .iter()
                .fold(0, |free, gap| self.begins[gap.last + 1].max(free) + self.copies[gap.tensor as usize]);
            if end > self.begins[turn.first] {
                leaving.remove(at);
            }
        }
    }
}
