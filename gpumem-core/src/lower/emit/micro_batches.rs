//! Micro-batches: the program of a split batch is that of one micro-batch, and the updates after the last.
//!
//! The operations before the first update run once for each micro-batch. Gradients of parameters and the loss are added to the sums of earlier
//! micro-batches, so that both begin at 0 and live through all of them. The loss of a micro-batch is its share of the loss of the whole batch.

use crate::program::{Action, Operand, Operation, Slot, Tensor, TensorId};

/// Lets the loss live through the whole step, and adds its first term to those of earlier micro-batches.
pub(in crate::lower) fn keep_loss(operations: &mut [Operation], tensors: &mut [Tensor], results: &[TensorId]) {
    let is_loss = |operation: &&mut Operation| matches!(operation.action, Action::Loss(_));
    if let Some(first) = operations.iter_mut().find(is_loss)
        && let Some(tensor) = first.written(Slot::Loss)
    {
        first.reads.push(Operand { slot: Slot::Loss, tensor });
    }
    results.iter().for_each(|&id| tensors[id as usize].first = 0);
}
