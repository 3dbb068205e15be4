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
use super::merged::Activations;
use super::normalized::share_scratch;
use super::recompute::{Draft, Setting};
use super::renormalised::{Renormalised, normalises, renormalise, waiting};
use super::{LowerError, Training, front};
use crate::graph::Graph;
use crate::program::Phase;
use alloc::vec::Vec;
use core::cmp::Reverse;
use model::{Model, alive, most_alive};

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
    share_scratch(&mut draft);
    (draft, begins)
}

/// The training step from where its loss is known, in the order that was found to need least at a setting. `built` is the step up to there, in
/// which more or fewer [activations](super::merged) keep nothing.
pub(super) fn ordered<'g>(
    built: impl Fn(Activations) -> Result<Builder<'g>, LowerError>,
    graph: &Graph,
    training: Training<'_>,
    setting: &Setting,
) -> Result<Draft, LowerError> {
    let again = match setting.renormalises && normalises(graph) {
        true => renormalised(built(Activations::All)?, graph, training, setting),
        false => None,
    };
    let again = match again {
        // No order of a step that keeps all needs as little.
        Some(again) if again.peak + again.keeping / PART < again.keeping => return Ok(again.draft),
        again => again.map(|again| (again.draft, again.peak)),
    };
    let (mut draft, mut peak, is_near) = least(built(Activations::Unread)?, graph, training, setting);
    let other = match is_near {
        true => None,
        false => built(Activations::All).ok().map(|builder| least(builder, graph, training, setting)),
    };
    for (found, less) in other.map(|(found, less, _)| (found, less)).into_iter().chain(again) {
        if less + peak / PART < peak {
            (draft, peak) = (found, less);
        }
    }
    Ok(draft)
}

/// A step that makes outputs of normalisations [again](super::renormalised), in the order of the rule otherwise.
#[derive(Clone)]
struct Again {
    draft: Draft,
    /// The most bytes that are alive in it, and the first operation at which they are.
    peak: u64,
    at: usize,
    /// What is alive at the loss, and what would be if these outputs were kept.
    kept: u64,
    keeping: u64,
}

/// The step in which such outputs are made beside gradients or, where that is the peak, some of them by themselves.
fn renormalised(builder: Builder<'_>, graph: &Graph, training: Training<'_>, setting: &Setting) -> Option<Again> {
    let mut all = builder.renormalised();
    if all.is_empty() {
        return None;
    }
    let pieces = builder.pieces();
    let step = |all: &[Renormalised]| {
        let (mut draft, _) = drafted(builder.clone(), graph, training, &waiting(&pieces, all));
        let outputs = renormalise(&mut draft, all)?;
        let alive = alive(&draft, setting)?;
        let kept = alive[draft.operations.iter().position(|operation| operation.phase() == Phase::Loss)?];
        let (peak, Reverse(at)) = alive.into_iter().zip((0..).map(Reverse)).max()?;
        let bytes = outputs.iter().filter_map(|&output| setting.bytes(&draft.tensors[output as usize]));
        let keeping = kept + bytes.sum::<u64>();
        Some(Again { draft, peak, at, kept, keeping })
    };
    let patient = step(&all)?;
    if patient.peak <= patient.kept + patient.peak / PART {
        return Some(patient);
    }
    // What gradients read that wait is there beside that of the input: where that is the peak, they had better not wait.
    let (mut found, mut best) = (patient.clone(), patient.clone());
    for _ in 0..HURRIED {
        let hurries = all.iter_mut().any(|it| it.hurry(&found.draft, found.at));
        match if hurries { step(&all) } else { None } {
            Some(next) if next.peak <= best.peak => found = next,
            _ => break,
        }
        if found.peak < best.peak {
            best = found.clone();
        }
    }
    Some(if best.peak + patient.peak / PART < patient.peak { best } else { patient })
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
