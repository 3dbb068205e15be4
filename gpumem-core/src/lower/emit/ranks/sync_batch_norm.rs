//! Batch norms over the samples of all ranks: `sync_batch_norm: true`.
//!
//! A batch norm becomes two operations with an exchange between them. Forward, the first computes the mean and the variance of a rank's own samples; the
//! second combines those of all ranks, and normalises. Backward, the first sums the gradients of each channel and computes the gradients of factors
//! and summands; the second computes the gradient of the input from the sums of all ranks. A recomputed norm reads saved statistics and stays.

use super::Pair;
use crate::number::Role;
use crate::program::op::TrainingOnly;
use crate::program::{Action, Collective, Op, Operand, Operation, Part, Pass, Slot, Tensor, TensorId};
use crate::shape::Shape;
use crate::train::ranks::{Ranks, Sharding};
use alloc::string::ToString;
use alloc::vec::Vec;

/// Splits the batch norms of a step, and adds the exchanges of their sums.
pub(super) fn synchronise(operations: Vec<Operation>, tensors: &mut Vec<Tensor>, ranks: Ranks) -> Vec<Operation> {
    let mut all = Vec::with_capacity(operations.len());
    for operation in operations {
        match (channels(&operation, tensors), &operation.action) {
            (Some(channels), Action::Run { pass: Pass::Forward | Pass::Chunk, .. }) => {
                // Each rank has its mean and its variance at the beginning of its shard.
                let shape = Shape::new(&[ranks.count, 2 * channels]);
                let sharding = Sharding::Gathered(ranks.count);
                let sums = add(tensors, "statistics of ranks", shape, sharding, operation.row);
                all.extend(split(operation, sums, Collective::Gather, Slot::Output));
            }
            (Some(channels), Action::Run { pass: Pass::Backward, .. })
                if operation.written(Slot::InputGradient(0)).is_some() =>
            {
                let shape = Shape::new(&[2, channels]);
                let sums = add(tensors, "sums of ranks", shape, Sharding::Replicated, operation.row);
                all.extend(split(operation, sums, Collective::Sum, Slot::InputGradient(0)));
            }
            _ => all.push(operation),
        }
    }
    all
}

/// True if an operation normalises by the statistics of all ranks.
pub(super) fn is_synchronised(operation: &Operation) -> bool {
    matches!(operation.action, Action::Run { .. }) && operation.read(Slot::Received(0)).is_some()
}

/// Returns the channels of an operation that normalises by the batch. `None` for others.
fn channels(operation: &Operation, tensors: &[Tensor]) -> Option<u64> {
    let Action::Run { op: op @ (Op::BatchNorm(_) | Op::InplaceNorm(_)), .. } = &operation.action else { return None };
    let moves = matches!(op.training_only(), Some(TrainingOnly::Statistics | TrainingOnly::Undone));
    let saved = operation.written(Slot::Saved(0)).or_else(|| operation.read(Slot::Saved(0))).filter(|_| moves)?;
    tensors[saved as usize].shape.dims().last().copied()
}

/// Adds a tensor for the sums that ranks exchange.
fn add(tensors: &mut Vec<Tensor>, name: &str, shape: Shape, sharding: Sharding, row: u32) -> TensorId {
    let tensor = Tensor::transient(Part::Workspace, Role::Statistic, row, shape);
    tensors.push(Tensor { name: name.to_string(), sharding, ..tensor });
    (tensors.len() - 1) as TensorId
}

/// Returns the operation that computes `sums` and all tensors that need no other rank, the exchange, and the operation that writes `last`.
fn split(operation: Operation, sums: TensorId, collective: Collective, last: Slot) -> [Operation; 4] {
    let (mut first, mut second) = (operation.clone(), operation);
    let phase = second.phase();
    let is_forward = last == Slot::Output;
    // The first operation of a forward pass needs nothing but the input.
    first.reads.retain(|operand| !is_forward || operand.slot == Slot::Input(0));
    first.writes.retain(|operand| match operand.slot {
        Slot::Workspace => true,
        slot => !is_forward && slot != last,
    });
    first.writes.push(Operand { slot: Slot::Sent(0), tensor: sums });
    second.reads.push(Operand { slot: Slot::Received(0), tensor: sums });
    second.writes.retain(|operand| match operand.slot {
        Slot::Workspace => false,
        slot => is_forward || slot == last,
    });
    // The sums of a rank are gathered, or added up, in their place.
    let pair = Pair::new(collective, phase, second.row, &[(sums, sums)]);
    [first, pair.begin, pair.end, second]
}
