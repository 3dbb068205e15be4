//! Turns a graph into a draft: the forward pass, the loss and the backward pass as operations on tensors.

pub(in crate::lower) mod backward;
pub(in crate::lower) mod builder;
pub(in crate::lower) mod forward;
mod logits_again;

use crate::lower::analysis::activation_slopes::Activations;
use crate::lower::draft::Draft;
use crate::lower::options::{LowerError, Training};
use crate::lower::rewrite::Rewritten;
use builder::Builder;

/// Returns the draft of a forward pass.
///
/// # Errors
/// Refuses `inplace` if something else needs the input, and a network without layers.
pub(in crate::lower) fn forward_pass(rewritten: &Rewritten<'_>) -> Result<Draft, LowerError> {
    let mut builder =
        Builder::new(&rewritten.graph, rewritten.outputs, rewritten.ends.clone(), None, Activations::Unread)?;
    builder.forward()?;
    Ok(builder.into_draft())
}

/// Returns the draft of a training step, its backward pass in the default order.
///
/// # Errors
/// Those of [`up_to_loss`].
pub(in crate::lower) fn training_step(rewritten: &Rewritten<'_>, training: Training<'_>) -> Result<Draft, LowerError> {
    let mut builder = up_to_loss(rewritten, training, Activations::Unread)?;
    let pieces = builder.pieces();
    builder.backward(training, &pieces);
    Ok(builder.into_draft())
}

/// Returns the builder of a training step that has come to its loss. Its [backward pass](Builder::backward) may come in several orders.
///
/// # Errors
/// Refuses `inplace` if something else needs the input, and a loss that depends on no trained parameter.
pub(in crate::lower) fn up_to_loss<'g>(
    rewritten: &'g Rewritten<'_>,
    training: Training<'g>,
    activations: Activations,
) -> Result<Builder<'g>, LowerError> {
    let Rewritten { graph, outputs, ends, chunks } = rewritten;
    let mut builder = Builder::new(graph, outputs, ends.clone(), Some(training), activations)?;
    builder.chunks = chunks;
    builder.forward()?;
    builder.loss(training)?;
    Ok(builder)
}
