//! Steps whose batch is split into parts: the program is that of one part, and what follows the last.
//!
//! The operations before the first update run once for each part. Gradients of parameters and the loss are added to what earlier parts
//! have left there, so that both begin at 0 and live through all of them. The loss of a part is its share of that of the whole batch.

use super::Term;
use crate::program::loss::Reduction;
use crate::program::{Action, Criterion, Measure, Operand, Operation, Slot, Tensor, TensorId};
use crate::shape::Shape;

/// What a term is multiplied with in each part: a mean over the batch is one over the parts of the means of each. One that divides by what
/// the targets say is given what all targets of the batch come to.
pub(super) fn weight(term: &Term, parts: u64) -> f64 {
    let is_sum = term.measure == Measure::Dot || term.options.reduction == Reduction::Sum;
    let counts = || Criterion::new(term.measure, 1.0, term.options.clone(), Shape::new(&[1])).counts();
    if is_sum || counts() { term.weight } else { term.weight / parts as f64 }
}

/// Lets the loss live through the whole step, and its first term be added to those of earlier parts.
pub(super) fn keep_loss(operations: &mut [Operation], tensors: &mut [Tensor], results: &[TensorId]) {
    let is_loss = |operation: &&mut Operation| matches!(operation.action, Action::Loss(_));
    if let Some(first) = operations.iter_mut().find(is_loss)
        && let Some(tensor) = first.written(Slot::Loss)
    {
        first.reads.push(Operand { slot: Slot::Loss, tensor });
    }
    results.iter().for_each(|&id| tensors[id as usize].first = 0);
}
