//! The order of the backward pass.
//!
//! The rule is node after node from the last to the first, and of each the gradients of its parameters before that of its input: what is kept
//! is freed as fast as it can be. All of it is there at the loss, and in most networks little is beside it afterwards, so that no order needs
//! less. Where the rule needs more than that, another order is looked for: the gradient of a large weight may wait until maps are gone, or a
//! branch may be finished before the gradient of the next one is cut out of that of a concatenation. Activations behind normalisations may
//! then keep nothing wherever they are, so that what a convolution reads is gone before the gradient of its input is made.

mod model;
mod search;
#[cfg(test)]
mod tests;

use super::backward::Piece;
use super::builder::Builder;
use super::recompute::{Draft, Setting};
use super::renormalised::{Renormalised, renormalise, waiting};
use super::{Training, front};
use crate::graph::Graph;
use alloc::vec::Vec;
use model::{Model, fullest, most_alive};

/// An order is looked for where the rule needs more than this part of the peak beside what is there at the loss, and taken where it needs less
/// by more than that: what runs in one pass over memory may be apart in it.
const PART: u64 = 128;

/// At most so many outputs of normalisations are made again by themselves.
const HURRIED: usize = 16;

/// A training step from where its loss is known, its pieces in this order; and where in its operations each piece begins.
pub(super) fn drafted(
    mut builder: Builder<'_>,
    graph: &Graph,
    training: Training<'_>,
    pieces: &[Piece],
) -> (Draft, Vec<usize>) {
    builder.backward(training, pieces);
    let begins = core::mem::take(&mut builder.begins);
    let mut draft = builder.into_draft();
    front::read_in_front(&mut draft, graph);
    (draft, begins)
}

/// The training step from where its loss is known, in the order that was found to need least at a setting. `other` is the same step with
/// [more activations](super::merged) that keep nothing, asked for where it may need less.
pub(super) fn ordered<'g>(
    builder: Builder<'g>,
    other: impl FnOnce() -> Option<Builder<'g>>,
    graph: &Graph,
    training: Training<'_>,
    setting: &Setting,
) -> Draft {
    let is_normalised = setting.renormalises && builder.normalises();
    let (mut draft, mut peak, is_near) = least(builder, graph, training, setting);
    let other = if is_near && !is_normalised { None } else { other() };
    let Some(builder) = other else { return draft };
    let again = if is_normalised { renormalised(builder.clone(), graph, training, setting) } else { None };
    let ordered = (!is_near).then(|| least(builder, graph, training, setting));
    for (found, less) in ordered.map(|(found, less, _)| (found, less)).into_iter().chain(again) {
        if less + peak / PART < peak {
            (draft, peak) = (found, less);
        }
    }
    draft
}

/// The step that makes outputs of normalisations [again](super::renormalised), in the order of the rule otherwise, and the most bytes that are
/// alive in it.
fn renormalised(
    builder: Builder<'_>,
    graph: &Graph,
    training: Training<'_>,
    setting: &Setting,
) -> Option<(Draft, u64)> {
    let mut all = builder.renormalised();
    if all.is_empty() {
        return None;
    }
    let pieces = builder.pieces();
    let step = |all: &[Renormalised]| {
        let (mut draft, _) = drafted(builder.clone(), graph, training, &waiting(&pieces, all));
        renormalise(&mut draft, all)?;
        let (peak, at) = fullest(&draft, draft.operations.len(), setting)?;
        Some((draft, peak, at))
    };
    let mut found = step(&all)?;
    let patient = (found.0.clone(), found.1);
    let mut best = patient.clone();
    // What gradients read that wait is there beside that of the input: where that is the peak, they had better not wait.
    for _ in 0..HURRIED {
        let hurries = all.iter_mut().any(|it| it.hurry(&found.0, found.2));
        let next = if hurries { step(&all) } else { None };
        match next.filter(|next| next.1 <= best.1) {
            Some(next) => found = next,
            None => break,
        }
        if found.1 < best.1 {
            best = (found.0.clone(), found.1);
        }
    }
    Some(if best.1 + patient.1 / PART < patient.1 { best } else { patient })
}

/// The order of one step that was found to need least, the most bytes that are alive in it, and whether little of them is beside what is kept.
fn least(builder: Builder<'_>, graph: &Graph, training: Training<'_>, setting: &Setting) -> (Draft, u64, bool) {
    let pieces = builder.pieces();
    let (rule, begins) = drafted(builder.clone(), graph, training, &pieces);
    let Some(peak) = most_alive(&rule, rule.operations.len(), setting) else { return (rule, u64::MAX, true) };
    if pieces.is_empty() {
        return (rule, peak, true);
    }
    let model = Model::new(&builder, training, &pieces, (&rule, &begins), setting);
    if peak.saturating_sub(model.floor()) <= peak / PART {
        return (rule, peak, true);
    }
    if let Some(order) = search::search(&model) {
        let order: Vec<Piece> = order.into_iter().map(|at| pieces[at]).collect();
        let (found, _) = drafted(builder, graph, training, &order);
        if let Some(less) =
            most_alive(&found, found.operations.len(), setting).filter(|&less| less + peak / PART < peak)
        {
            return (found, less, false);
        }
    }
    (rule, peak, false)
}
