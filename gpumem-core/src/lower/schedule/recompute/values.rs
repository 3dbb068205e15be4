//! The values of a training step.
//!
//! Each run of a forward operation writes a value of its own, even if it works in place: only then can one be recomputed while another is in the
//! memory where it was. Operations after the forward pass never run twice, so that their tensors stay what they are.

use crate::lower::draft::{ConcatPrefix, Draft};
use crate::program::{Action, Class, Operation, Pass, Phase, Slot, TensorId};
use alloc::vec;
use alloc::vec::Vec;

/// The number that stands for no value and no tensor.
pub(in crate::lower) const NONE: u32 = u32::MAX;

/// A result of a forward operation.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::lower) struct Value {
    /// The tensor of the step that holds it.
    pub(in crate::lower) tensor: TensorId,
    /// The operation that writes it.
    pub(in crate::lower) producer: u32,
    /// The forward operations that read it, in order.
    pub(in crate::lower) consumers: Vec<u32>,
    /// The operations after the forward pass that read it, in order.
    pub(in crate::lower) readers: Vec<u32>,
    /// True if it is alive until its last reader, whatever is decided. That holds for saved tensors that an operation reads when it runs again,
    /// and for what the loss compares.
    pub(in crate::lower) is_pinned: bool,
}

/// A tensor that an operation after the forward pass writes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lower) struct Own {
    /// The tensor.
    pub(in crate::lower) tensor: TensorId,
    /// The value whose memory it takes over, or [`NONE`].
    pub(in crate::lower) takes: u32,
}

/// The meaning of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lower) enum Place {
    /// A value, by its number.
    Value(u32),
    /// A tensor that is first written after the forward pass, by its number among those.
    Own(u32),
    /// Scratch memory of a forward operation: each run has its own.
    Scratch,
    /// A tensor that exists before and after the step.
    Lasting,
}

/// The values of a step, and the operands of each operation in terms of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::lower) struct Values {
    pub(in crate::lower) values: Vec<Value>,
    pub(in crate::lower) owns: Vec<Own>,
    /// The operands that each operation reads and writes, in order.
    pub(in crate::lower) reads: Vec<Vec<Place>>,
    pub(in crate::lower) writes: Vec<Vec<Place>>,
    /// The number of forward operations, which come first.
    pub(in crate::lower) forward: usize,
    /// Forward operations that read the second value instead of the first when they run again.
    prefixes: Vec<(usize, [u32; 2])>,
}

/// True if an operation reads what it saved when it runs again.
pub(in crate::lower) fn reads_saved(operation: &Operation) -> bool {
    operation.forward().is_some_and(|op| op.runs_again_from_saved())
}

impl Values {
    /// Returns the values of a step; `None` if not all forward operations come first.
    pub(in crate::lower) fn of(draft: &Draft) -> Option<Values> {
        let is_forward = |operation: &Operation| matches!(operation.action, Action::Run { pass: Pass::Forward, .. });
        let forward = draft.operations.iter().take_while(|operation| is_forward(operation)).count();
        if draft.operations[forward..].iter().any(is_forward) {
            return None;
        }
        let mut values = Values { forward, ..Values::default() };
        // The value that each tensor holds now, and its number in `owns` if it is one of those.
        let (mut now, mut own) = (vec![NONE; draft.tensors.len()], vec![NONE; draft.tensors.len()]);
        for (at, operation) in draft.operations.iter().enumerate() {
            let reads: Option<Vec<Place>> =
                operation.reads.iter().map(|it| values.read(draft, at, it.tensor, (&now, &own))).collect();
            let writes = operation.writes.iter().map(|operand| {
                let id = operand.tensor as usize;
                if draft.tensors[id].class != Class::Transient {
                    return Place::Lasting;
                }
                if at >= forward {
                    if own[id] == NONE {
                        own[id] = values.owns.len() as u32;
                        values.owns.push(Own { tensor: operand.tensor, takes: now[id] });
                    }
                    return Place::Own(own[id]);
                }
                if operand.slot == Slot::Workspace {
                    return Place::Scratch;
                }
                let is_pinned = matches!(operand.slot, Slot::Saved(_)) && reads_saved(operation);
                let (tensor, producer) = (operand.tensor, at as u32);
                now[id] = values.values.len() as u32;
                values.values.push(Value { tensor, producer, consumers: vec![], readers: vec![], is_pinned });
                Place::Value(now[id])
            });
            let writes = writes.collect();
            values.writes.push(writes);
            values.reads.push(reads?);
        }
        for prefix in &draft.prefixes {
            values.read_prefix(draft, prefix, &now)?;
        }
        Some(values)
    }

    /// Lets an operation read its input from a concatenation when it runs again. Both values stay, whatever is decided. `now` are the values that
    /// tensors hold after the forward pass. `None` if the operation has no such input.
    fn read_prefix(&mut self, draft: &Draft, prefix: &ConcatPrefix, now: &[u32]) -> Option<()> {
        let (at, whole) = (prefix.operation as usize, *now.get(prefix.tensor as usize)?);
        let input = draft.operations.get(at)?.reads.iter().position(|operand| operand.slot == Slot::Input(0))?;
        let Some(Place::Value(own)) = self.reads.get(at)?.get(input).copied() else { return None };
        for value in [own, whole] {
            self.values.get_mut(value as usize)?.is_pinned = true;
        }
        self.prefixes.push((at, [own, whole]));
        Some(())
    }

    /// Returns `[input, concatenation]` if an operation reads its input from a concatenation when it runs again; `None` otherwise.
    pub(in crate::lower) fn prefix(&self, at: usize) -> Option<[u32; 2]> {
        self.prefixes.iter().find(|(operation, _)| *operation == at).map(|(_, values)| *values)
    }

    /// Returns the values that an operation reads, once for each operand.
    pub(in crate::lower) fn read_by(&self, at: usize) -> impl Iterator<Item = u32> + '_ {
        self.reads[at].iter().filter_map(|place| match *place {
            Place::Value(value) => Some(value),
            _ => None,
        })
    }

    /// Returns the values that an operation reads. Unlike [`Values::read_by`], replaces an input by its concatenation if the operation runs
    /// again.
    pub(in crate::lower) fn read_in(&self, at: usize, is_again: bool) -> impl Iterator<Item = u32> + '_ {
        let prefix = self.prefix(at).filter(|_| is_again);
        self.read_by(at).map(move |value| match prefix {
            Some([own, whole]) if own == value => whole,
            _ => value,
        })
    }

    fn read(&mut self, draft: &Draft, at: usize, tensor: TensorId, (now, own): (&[u32], &[u32])) -> Option<Place> {
        let id = tensor as usize;
        if draft.tensors[id].class != Class::Transient {
            return Some(Place::Lasting);
        }
        if own[id] != NONE {
            return Some(Place::Own(own[id]));
        }
        let value = self.values.get_mut(now[id] as usize)?;
        if at < self.forward {
            value.consumers.push(at as u32);
        } else {
            value.readers.push(at as u32);
            value.is_pinned |= draft.operations[at].phase() == Phase::Loss;
        }
        Some(Place::Value(now[id]))
    }
}
