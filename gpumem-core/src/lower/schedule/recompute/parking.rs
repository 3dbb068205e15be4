//! Values in host memory, as the search for levels counts them.
//!
//! Of the values that an order keeps, those that the [bus](crate::lower::schedule::bus) can move in time take no memory between the passes. So the
//! search may keep more of them and recompute less. [`Parking::peak`] counts that for an order. `away` says beforehand which values are
//! worth the bus. Both are estimates, since copies are operations of their own: each level is lowered and counted after the search.

use super::emit::{Emission, Held};
use super::values::Values;
use crate::lower::draft::Draft;
use crate::lower::liveness::live_bytes;
use crate::lower::schedule::bus::{Clock, Gap, LEAST, Turn};
use crate::number::Role;
use crate::program::{Class, Part, Phase};
use alloc::vec;
use alloc::vec::Vec;

/// The facts of a step that decide which values can be in host memory.
#[derive(Clone, Debug)]
pub(in crate::lower) struct Parking {
    /// The cost of each operation at the sizes of the bus model.
    pub(super) costs: Vec<u64>,
    /// The cost of moving each value once in the memory of a card, at those sizes.
    pub(super) moves: Vec<u64>,
    /// True for each value that may be in host memory.
    can_leave: Vec<bool>,
    /// The last forward operation that touches each value.
    last: Vec<usize>,
    /// The number of the loss's last operation.
    loss: u32,
}

impl Parking {
    /// Returns the facts of a step; `None` without a loss. At the sizes of the bus model, `costs` are those of its operations, and `moves` those of
    /// moving each tensor once.
    pub(super) fn of(draft: &Draft, values: &Values, (costs, moves): (Vec<u64>, Vec<u64>)) -> Option<Parking> {
        let loss = draft.operations.iter().rposition(|operation| operation.phase() == Phase::Loss)?;
        let can_leave = values.values.iter().map(|value| {
            let tensor = &draft.tensors[value.tensor as usize];
            let is_kind = tensor.class == Class::Transient && tensor.role == Role::Activation && tensor.batched;
            let is_result = draft.results.contains(&value.tensor) || draft.input_gradients.contains(&value.tensor);
            is_kind && tensor.part != Part::Workspace && !is_result
        });
        let last =
            values.values.iter().map(|value| value.consumers.last().map_or(value.producer, |&last| last) as usize);
        Some(Parking {
            costs,
            moves: values.values.iter().map(|value| moves[value.tensor as usize]).collect(),
            can_leave: can_leave.collect(),
            last: last.collect(),
            loss: loss as u32,
        })
    }

    /// Returns the peak of an order whose values leave as far as the bus allows. `whole` is its peak if all of them stay, in bytes,
    /// `values` are the bytes of its values, and `bytes` returns those of any piece of memory.
    pub(super) fn peak(&self, emission: &Emission<'_>, whole: u64, values: &[u64], bytes: impl Fn(Held) -> u64) -> u64 {
        let Some((clock, turn)) = self.clock(emission) else { return whole };
        let instances = &emission.instances;
        let mut away = vec![None; instances.len()];
        for trip in clock.round_trips(self.gaps(values, emission, turn, whole / LEAST), turn) {
            away[trip.gap.tensor as usize] = Some([trip.left, trip.returning]);
        }
        let mut ranges = Vec::with_capacity(2 * instances.len());
        for (at, instance) in instances.iter().enumerate().filter(|(at, instance)| instance.root as usize == *at) {
            let [first, last] = [instance.first as usize, instance.last as usize];
            let bytes = bytes(instance.held) as i64;
            match away[at] {
                Some([left, returning]) if left < returning => {
                    ranges.extend([([first, left], bytes), ([returning, last], bytes)])
                }
                _ => ranges.push(([first, last], bytes)),
            }
        }
        live_bytes(emission.order.len(), ranges).into_iter().max().unwrap_or(0) as u64
    }

    /// Returns the times of an order, with one copy for each instance, and its turn. `None` if the loss is not part of it.
    pub(super) fn clock(&self, emission: &Emission<'_>) -> Option<(Clock, Turn)> {
        let first = emission.step.values.forward;
        let last = first + emission.order[first..].iter().position(|&at| at == self.loss)?;
        let moves = emission.instances.iter().map(|it| it.value().map_or(0, |value| self.moves[value as usize]));
        let costs = emission.order.iter().map(|&at| self.costs[at as usize]);
        Some((Clock::new(costs, moves), Turn { first, last }))
    }

    /// Returns the instances of at least `least` bytes that the forward pass leaves for the backward pass, untouched by the loss.
    pub(super) fn gaps(&self, values: &[u64], emission: &Emission<'_>, turn: Turn, least: u64) -> Vec<Gap> {
        let next = first_reads(emission);
        let mut gaps: Vec<Option<Gap>> = vec![None; emission.instances.len()];
        for instance in emission.instances.iter().take_while(|instance| (instance.first as usize) < turn.first) {
            let Some(value) = instance.value().map(|value| value as usize) else { continue };
            let root = instance.root;
            // A value that nothing reads after the forward pass leaves its memory to one that something reads, or is gone.
            let next = if (instance.last as usize) < turn.first { usize::MAX } else { next[value] };
            let gap = gaps[root as usize].get_or_insert(Gap { tensor: root, last: 0, next: usize::MAX });
            gap.last = gap.last.max(self.last[value]);
            gap.next = gap.next.min(if self.can_leave[value] && values[value] >= least { next } else { usize::MAX });
        }
        gaps.into_iter().flatten().filter(|gap| gap.next != usize::MAX && gap.next > turn.last).collect()
    }
}

/// Returns the first entry after the forward pass that reads each value, or `usize::MAX`.
fn first_reads(emission: &Emission<'_>) -> Vec<usize> {
    let step = emission.step;
    let forward = step.values.forward;
    let mut first = vec![usize::MAX; step.values.values.len()];
    for (entry, &at) in emission.order.iter().enumerate().skip(forward) {
        let mut read = |value: u32| {
            let first = &mut first[value as usize];
            *first = (*first).min(entry);
        };
        if (at as usize) < forward {
            let run = &step.runs[at as usize];
            run.inputs_again.iter().chain(&run.saved).for_each(|&value| read(value));
        } else {
            step.values.read_by(at as usize).for_each(&mut read);
        }
    }
    first
}
