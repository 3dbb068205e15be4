//! Steps whose batch is split into parts: the program is that of one part, and what follows the last.
//!
//! The operations before the first update run once for each part. Gradients of parameters and the loss are added to what earlier parts
//! have left there, so that both begin at 0 and live through all of them. The loss of a part is its share of that of the whole batch.

use super::{LowerError, Term, Training};
use crate::program::loss::{LossOptions, Reduction};
use crate::program::{Action, Criterion, Measure, Operand, Operation, Slot, Tensor, TensorId};
use crate::shape::Shape;
use alloc::format;

/// Whether the mean of a loss divides by what the targets say, which no part of a batch knows of the others.
pub fn depends_on_targets(measure: Measure, options: &LossOptions) -> bool {
    Criterion::new(measure, 1.0, options.clone(), Shape::new(&[1])).counts()
}

/// What is said of such a loss.
pub fn of_targets(name: &str) -> alloc::string::String {
    format!(
        "the mean of `{name}` with `weight` or `ignore_index` divides by what all targets of the batch come to, which no micro-batch \
         knows; write `reduction: Sum` with a smaller learning rate, or leave `micro_batches` out"
    )
}

/// Fails where the parts of a batch do not make up the loss of the whole.
pub(super) fn check(training: &Training<'_>) -> Result<(), LowerError> {
    let is_it = |term: &&Term| depends_on_targets(term.measure, &term.options);
    match training.loss.iter().find(is_it).filter(|_| training.descent.accumulates()) {
        Some(term) => Err(LowerError::of_all(&of_targets(term.measure.name()))),
        None => Ok(()),
    }
}

/// What a term is multiplied with in each part: a mean over the batch is one over the parts of the means of each.
pub(super) fn weight(term: &Term, parts: u64) -> f64 {
    let is_sum = term.measure == Measure::Dot || term.options.reduction == Reduction::Sum;
    if is_sum { term.weight } else { term.weight / parts as f64 }
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
