//! Optimizer state and master copies in host memory. A step streams them through the arena, one piece after the other.
//!
//! Each update becomes the updates of its pieces. What a piece needs is fetched into a staging buffer, updated there and stored again. Pieces
//! take the [`Piece::BUFFERS`] buffers in turn: while one is updated, the next ones are on their way in, and the last one is on its way back.
//! Only the update of a piece waits for its copy and, at the end, [`Action::Settle`] waits for all: until there a staging buffer keeps its
//! memory.
//!
//! The updates are not gathered: each comes directly after the last piece of its gradient, so that copies run during the backward pass and the
//! gradient's memory is free at once.

use crate::lower::options::{LowerError, Training};
use crate::number::Role;
use crate::program::{Action, NO_ROW, Operand, Operation, Part, Piece, Slot, Tensor, TensorId};
use crate::shape::Shape;
use crate::train::Offload;
use crate::train::optim::{Optimizer, whole_states};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Returns the message for an optimizer with states that do not have one entry for each element of a parameter.
pub fn of_others(offload: Offload, optimizer: &str) -> String {
    let otherwise = without_states(offload);
    format!(
        "`offload: {}` updates a parameter a piece at a time, but {optimizer} does not treat each element by itself; choose one \
         that does, as {}, or {otherwise}",
        offload.name(),
        Optimizer::OF_ELEMENTS
    )
}

/// Returns the advice for an optimizer whose states cannot be offloaded.
pub fn without_states(offload: Offload) -> &'static str {
    if offload == Offload::All { "write `offload: Activations`" } else { "leave `offload` out" }
}

/// Fails if a piece of a parameter cannot be updated on its own.
pub(in crate::lower) fn check(training: &Training<'_>) -> Result<(), LowerError> {
    match training.descent.offloads() && whole_states(training.moments).1 {
        true => Err(LowerError::of_all(&of_others(training.descent.offload, "the optimizer"))),
        false => Ok(()),
    }
}

/// The most pieces of a parameter. Those of a parameter too large for any host are larger instead.
const MOST: u64 = 1 << 14;

/// Returns the pieces of a parameter with `elements` elements, if `before` pieces of other parameters come first.
fn pieces(elements: u64, before: usize) -> impl Iterator<Item = Piece> {
    let most = elements.div_ceil(MOST).next_multiple_of(Piece::MOST);
    let firsts = (0..elements.div_ceil(most.max(1))).map(move |index| index * most);
    let buffers = (before as u64..).map(|number| number % Piece::BUFFERS as u64);
    firsts.zip(buffers).map(move |(first, buffer)| Piece { first, count: most.min(elements - first), buffer })
}

/// True if an update has something in host memory: states, or at some precision a master copy.
fn has_states(update: &Operation, tensors: &[Tensor]) -> bool {
    let has_master = update.written(Slot::Parameter).is_some_and(|id| tensors[id as usize].role == Role::Weight);
    update.action == Action::Update && (has_master || update.written(Slot::Moment(0)).is_some())
}

/// Returns the operands of an update that are optimizer states.
fn moments(update: &Operation) -> impl Iterator<Item = Operand> + '_ {
    update.writes.iter().copied().filter(|operand| matches!(operand.slot, Slot::Moment(_)))
}

/// The staging buffers of a step, each with a tensor for every slot. A tensor is as large as the largest piece that passes through it.
#[derive(Debug, Default)]
struct Buffers {
    /// The slot, the tensor and the elements of each tensor of a buffer.
    all: [Vec<(Operand, u64)>; Piece::BUFFERS],
}

impl Buffers {
    /// Enlarges the buffer of a piece as its states require, and returns the tensors in it.
    fn stage(
        &mut self,
        Piece { count, buffer, .. }: Piece,
        slots: impl Iterator<Item = (Slot, Role)>,
        tensors: &mut Vec<Tensor>,
    ) -> Vec<Operand> {
        let number = buffer as usize % Piece::BUFFERS;
        let buffer = &mut self.all[number];
        let staged = slots.map(|(slot, role)| {
            let at = buffer.iter().position(|(operand, _)| operand.slot == slot).unwrap_or_else(|| {
                buffer.push((Operand { slot, tensor: tensors.len() as TensorId }, 0));
                tensors.push(staging(number, slot, role));
                buffer.len() - 1
            });
            let (operand, most) = &mut buffer[at];
            *most = count.max(*most);
            tensors[operand.tensor as usize].shape = Shape::new(&[*most]);
            *operand
        });
        staged.collect()
    }

    /// Returns all tensors of all buffers.
    fn tensors(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.all.iter().flatten().map(|(operand, _)| operand.tensor)
    }
}

/// Returns a staging tensor without elements.
fn staging(number: usize, slot: Slot, role: Role) -> Tensor {
    let name = match slot {
        Slot::Moment(index) => format!("staging[{number}].moment{index}"),
        _ => format!("staging[{number}].master"),
    };
    Tensor { name, ..Tensor::transient(Part::Staging, role, NO_ROW.into(), Shape::new(&[0])) }
}

/// Returns the three operations of a piece of an update: fetch, update and store.
fn passage(update: &Operation, piece: Piece, staged: Vec<Operand>) -> [Operation; 3] {
    let is_name = |operand: &&Operand| operand.slot == Slot::Parameter;
    let name: Vec<Operand> = update.reads.iter().filter(is_name).copied().collect();
    let operation = |action, reads, writes| Operation { action, row: update.row, accumulate: false, reads, writes };
    let host: Vec<Operand> = moments(update).collect();
    let lasting = |operands: &[Operand]| -> Vec<Operand> {
        operands.iter().filter(|operand| !matches!(operand.slot, Slot::Moment(_))).copied().collect()
    };
    [
        operation(Action::Fetch(piece), [&name[..], &host].concat(), staged.clone()),
        operation(
            Action::UpdatePiece(piece),
            [&lasting(&update.reads)[..], &staged].concat(),
            [&lasting(&update.writes)[..], &staged].concat(),
        ),
        operation(Action::Store(piece), [&name[..], &staged].concat(), host),
    ]
}

/// Streams optimizer states and master copies from host memory through staging buffers.
pub(in crate::lower) fn stream(operations: Vec<Operation>, tensors: &mut Vec<Tensor>) -> Vec<Operation> {
    let mut buffers = Buffers::default();
    let mut passages: Vec<[Operation; 3]> = Vec::new();
    // The number of pieces whose update comes before or at each operation.
    let mut ends: Vec<usize> = Vec::with_capacity(operations.len());
    for update in &operations {
        if has_states(update, tensors)
            && let Some(parameter) = update.written(Slot::Parameter)
        {
            let parameter = &tensors[parameter as usize];
            let elements = parameter.own_shard().unwrap_or(u64::MAX);
            let master = (parameter.role == Role::Weight).then_some((Slot::Master, Role::Master));
            for piece in pieces(elements, passages.len()) {
                let slots = moments(update).map(|operand| (operand.slot, Role::Moment)).chain(master);
                let staged = buffers.stage(piece, slots, tensors);
                passages.push(passage(update, piece, staged));
            }
        }
        ends.push(passages.len());
    }
    if passages.is_empty() {
        return operations;
    }
    interleaved(operations, &ends, passages, &settle(buffers.tensors()))
}

/// Returns the operation that waits for all copies.
fn settle(staging: impl Iterator<Item = TensorId>) -> Operation {
    let reads = (0..).zip(staging).map(|(index, tensor)| Operand { slot: Slot::Input(index), tensor });
    let (reads, writes) = (reads.collect(), Vec::new());
    Operation { action: Action::Settle, row: NO_ROW.into(), accumulate: false, reads, writes }
}

/// Replaces updates by the operations of their pieces. `ends` has the number of pieces that have come with each operation. As many pieces are
/// fetched ahead as there are buffers.
fn interleaved(
    operations: Vec<Operation>,
    ends: &[usize],
    passages: Vec<[Operation; 3]>,
    settle: &Operation,
) -> Vec<Operation> {
    let mut streamed = Vec::with_capacity(operations.len() + 3 * passages.len() + 1);
    let mut fetches = passages.iter().map(|[fetch, ..]| fetch.clone());
    let mut done = 0;
    for (operation, &end) in operations.into_iter().zip(ends) {
        if operation.action == Action::Advance {
            streamed.push(settle.clone());
        }
        if end == done {
            streamed.push(operation);
            continue;
        }
        if done == 0 {
            streamed.extend(fetches.by_ref().take(Piece::BUFFERS));
        }
        for [_, update, store] in &passages[done..end] {
            streamed.extend([update.clone(), store.clone()]);
            streamed.extend(fetches.next());
        }
        done = end;
    }
    streamed
}
