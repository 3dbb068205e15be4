//! Ranks: the exchanges of a training step that several processes share.
//!
//! This stage runs when recomputation and the order of operations are settled. Nothing in the memory plan knows of ranks besides the elements of a
//! [shard](crate::train::ranks::Sharding): an exchange is an operation that starts and one that waits, and between the two its tensors have their
//! places to themselves.
//!
//! * [`buckets`] exchanges gradients in the order in which they are complete, and lets updates wait for that;
//! * [`gathers`] gathers sharded parameters before the operations that read them;
//! * [`norms`] lets ranks agree on the norm of gradients of which they have shards;
//! * [`sync_batch_norm`] normalises by the statistics of all ranks.

mod buckets;
mod gathers;
mod norms;
mod sync_batch_norm;

use crate::lower::draft::Draft;
use crate::lower::options::Training;
use crate::program::op::TrainingOnly;
use crate::program::{Action, Class, Collective, Exchange, NO_ROW, Operand, Operation, Phase, Slot, Tensor, TensorId};
use crate::train::Shard;
use crate::train::ranks::{Ranks, Sharding};
use alloc::vec::Vec;

/// Adds the exchanges of a training step that several ranks share, and sets how they keep each tensor.
pub(in crate::lower) fn exchange(
    operations: Vec<Operation>,
    tensors: &mut Vec<Tensor>,
    training: &Training<'_>,
    loss: &[TensorId],
) -> Vec<Operation> {
    let ranks = training.descent.ranks;
    tensors.iter_mut().for_each(|tensor| tensor.sharding = sharding(ranks, tensor));
    let operations = match ranks.synchronises_norms() {
        true => sync_batch_norm::synchronise(operations, tensors, ranks),
        false => operations,
    };
    let mut operations = buckets::exchange(operations, tensors, training);
    norms::exchange(&mut operations, tensors, ranks);
    exchange_denominators(&mut operations, tensors);
    exchange_loss(&mut operations, training, loss);
    average_statistics(&mut operations, tensors);
    if ranks.shards(Shard::Parameters) {
        operations = gathers::gather(operations, tensors, ranks);
    }
    operations
}

/// Shards the parameters of a forward pass, and adds the exchanges that gather them.
pub(in crate::lower) fn shard_forward(draft: &mut Draft, ranks: Ranks) {
    let Draft { tensors, operations, .. } = draft;
    tensors.iter_mut().for_each(|tensor| tensor.sharding = sharding(ranks, tensor));
    *operations = gathers::gather(core::mem::take(operations), tensors, ranks);
}

/// Returns how ranks keep a tensor that lives longer than a step, or until its end. Others are replicated.
fn sharding(ranks: Ranks, tensor: &Tensor) -> Sharding {
    let elements = tensor.unsharded().unwrap_or(u64::MAX);
    match tensor.class {
        Class::Parameter => ranks.of_parameter(tensor.role, elements, tensor.trained),
        Class::Moment | Class::Average => ranks.of_state(tensor.role, elements),
        Class::Gradient => ranks.of_gradient(tensor.role, elements),
        _ => tensor.sharding,
    }
}

/// An exchange, as the two operations that start it and wait for it.
struct Pair {
    begin: Operation,
    end: Operation,
}

impl Pair {
    /// Returns the exchange of pairs of tensors: the one that is sent, and the one in which numbers are received.
    fn new(collective: Collective, phase: Phase, row: u32, tensors: &[(TensorId, TensorId)]) -> Pair {
        let slots = |slot: fn(u8) -> Slot, of: fn(&(TensorId, TensorId)) -> TensorId| -> Vec<Operand> {
            (0..).zip(tensors).map(|(number, pair)| Operand { slot: slot(number), tensor: of(pair) }).collect()
        };
        let (sent, received) = (slots(Slot::Sent, |pair| pair.0), slots(Slot::Received, |pair| pair.1));
        let exchange = Exchange { collective, phase };
        let of = |action, reads, writes| Operation { action, row, accumulate: false, reads, writes };
        // An exchange in place changes only a part of its tensor, so that it reads the tensor as well.
        Pair {
            begin: of(Action::Exchange(exchange), sent.clone(), received.clone()),
            end: of(Action::EndExchange(exchange), [sent, received].concat(), Vec::new()),
        }
    }
}

/// True if an operation is the last of a step.
fn advances(operation: &Operation) -> bool {
    operation.action == Action::Advance
}

/// Returns the index of the operation before which everything that belongs to a step has come.
fn end_of(operations: &[Operation]) -> usize {
    operations.iter().position(advances).unwrap_or(operations.len())
}

/// Adds up the numbers of targets that the host of each rank counted, before the first operation that reads them.
fn exchange_denominators(operations: &mut Vec<Operation>, tensors: &[Tensor]) {
    let is_counted = |operand: &&Operand| {
        matches!(operand.slot, Slot::Saved(0)) && tensors[operand.tensor as usize].class == Class::Target
    };
    let mut counted: Vec<(TensorId, TensorId)> = Vec::new();
    for operand in operations.iter().flat_map(|operation| &operation.reads).filter(is_counted) {
        if !counted.contains(&(operand.tensor, operand.tensor)) {
            counted.push((operand.tensor, operand.tensor));
        }
    }
    let reads = |operation: &Operation| operation.tensors().any(|id| counted.contains(&(id, id)));
    if let Some(first) = operations.iter().position(reads) {
        let pair = Pair::new(Collective::Sum, Phase::Forward, NO_ROW.into(), &counted);
        operations.insert(first, pair.end);
        operations.insert(0, pair.begin);
    }
}

/// Adds up the shares that ranks have of the loss. With micro-batches that comes after all of them, else beside the backward pass.
fn exchange_loss(operations: &mut Vec<Operation>, training: &Training<'_>, loss: &[TensorId]) {
    let loss: Vec<(TensorId, TensorId)> = loss.iter().map(|&id| (id, id)).collect();
    let is_loss = |operation: &Operation| operation.tensors().any(|id| loss.contains(&(id, id)));
    let Some(last) = operations.iter().rposition(is_loss) else { return };
    let accumulates = training.descent.accumulates();
    let phase = if accumulates { Phase::Update } else { Phase::Backward };
    let pair = Pair::new(Collective::Sum, phase, NO_ROW.into(), &loss);
    let end = end_of(operations);
    operations.insert(end, pair.end);
    let first_update = operations.iter().position(|operation| operation.phase() == Phase::Update).unwrap_or(end);
    operations.insert(if accumulates { first_update } else { last + 1 }, pair.begin);
}

/// Brings running statistics to their mean over ranks at the end of the step. Each rank has those of its own samples until then, unless norms are
/// synchronised.
fn average_statistics(operations: &mut Vec<Operation>, tensors: &[Tensor]) {
    let mut moved: Vec<(TensorId, TensorId)> = Vec::new();
    for operation in operations.iter() {
        let op = operation.forward().and_then(|op| op.training_only());
        let moves = matches!(op, Some(TrainingOnly::Statistics | TrainingOnly::Undone));
        if !moves || sync_batch_norm::is_synchronised(operation) {
            continue;
        }
        for operand in operation.writes.iter().filter(|operand| matches!(operand.slot, Slot::Buffer(_))) {
            let pair = (operand.tensor, operand.tensor);
            if tensors[operand.tensor as usize].class == Class::Buffer && !moved.contains(&pair) {
                moved.push(pair);
            }
        }
    }
    let end = end_of(operations);
    let pairs = moved.chunks(Ranks::MOST_TENSORS).flat_map(|moved| {
        let Pair { begin, end } = Pair::new(Collective::Mean, Phase::Update, NO_ROW.into(), moved);
        [begin, end]
    });
    let pairs: Vec<Operation> = pairs.collect();
    operations.splice(end..end, pairs);
}
