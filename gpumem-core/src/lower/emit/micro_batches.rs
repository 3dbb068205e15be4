//! Micro-batches: the program of a split batch is that of one micro-batch, and the updates after the last.
//!
//! The operations before the first update run once for each micro-batch. Gradients of parameters and the loss are added to the sums of earlier
//! micro-batches, so that both begin at 0 and live through all of them. The loss of a micro-batch is its share of the loss of the whole batch.

use crate::lower::options::Term;
use crate::program::loss::Reduction;
use crate::program::{Action, Criterion, Measure, Operand, Operation, Slot, Tensor, TensorId};
use crate::shape::Shape;

/// Returns the factor of a term in each micro-batch. The mean over a batch is the mean of the means over its micro-batches. A term that divides
/// by a count of the targets keeps its factor, since the host gives it the count of the whole batch.
pub(in crate::lower) fn weight(term: &Term, parts: u64) -> f64 {
    let is_sum = term.measure == Measure::Dot || term.options.reduction == Reduction::Sum;
    let counts = || Criterion::new(term.measure, 1.0, term.options.clone(), Shape::new(&[1])).counts();
    if is_sum || counts() { term.weight } else { term.weight / parts as f64 }
}

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
