//! The order of the backward pass.
//!
//! The default order visits node after node from the last to the first, and of each node the gradients of its parameters before that of its
//! input: saved tensors are freed as early as possible. All of them are alive at the loss, and in most networks little else is alive afterwards,
//! so that no order needs less memory. If the default order needs more than that, another one is searched. The gradient of a large weight may
//! wait until maps are freed, or a branch may be finished before the gradient of the next one is sliced out of that of a concatenation. In the
//! search, all activations after normalisations may save nothing, so that the input of a convolution is freed before that input's gradient is
//! computed.

mod model;
mod search;
#[cfg(test)]
mod tests;

use crate::lower::analysis::activation_slopes::Activations;
use crate::lower::differentiate::builder::{Builder, GradientPiece};
use crate::lower::differentiate::up_to_loss;
use crate::lower::draft::Draft;
use crate::lower::options::{LowerError, Training};
use crate::lower::rewrite::Rewritten;
use crate::lower::schedule::concat_prefix;
use crate::lower::schedule::recompute_norms::{Renormalised, normalises, renormalise, waiting};
use crate::lower::sizes::Sizes;
use crate::program::fusion::{GroupKind, groups};
use crate::program::{Operand, Phase, Slot};
use alloc::vec::Vec;
use core::cmp::Reverse;
use model::{Model, alive, most_alive};

/// The divisor of the peak that gives the least saving that counts. Another order is searched if the default peak exceeds the bytes alive at the
/// loss by more than this part. It is taken if it saves more than this part, since operations that run as one pass over memory may be apart in
/// it.
const PART: u64 = 128;

/// The most outputs of normalisations that are recomputed on their own, and not next to the gradient of the normalisation.
const HURRIED: usize = 16;

/// Adds the backward pass, its pieces in this order, to a step that has come to its loss. Returns the draft, and the operation index at which
/// each piece begins.
fn drafted(mut builder: Builder<'_>, training: Training<'_>, pieces: &[GradientPiece]) -> (Draft, Vec<usize>) {
    let graph = builder.analysis.graph;
    builder.backward(training, pieces);
    let begins = core::mem::take(&mut builder.begins);
    let mut draft = builder.into_draft();
    concat_prefix::read_prefixes(&mut draft, graph);
    share_scratch(&mut draft);
    (draft, begins)
}

/// Extends the scratch memory of conv norms' gradients to the rectifier before them. Sums are taken in the pass that propagates the gradient
/// through the rectifier, so that they must not overlap what it reads.
fn share_scratch(draft: &mut Draft) {
    for group in groups(&draft.operations).into_iter().filter(|group| group.kind == GroupKind::ConvNormGradient) {
        let tensor = draft.operations[group.last()].written(Slot::Workspace);
        draft.operations[group.first].writes.extend(tensor.map(|tensor| Operand { slot: Slot::Workspace, tensor }));
    }
}

/// Returns the training step with its backward pass in the default order.
pub(in crate::lower) fn in_default_order(
    rewritten: &Rewritten<'_>,
    training: Training<'_>,
) -> Result<Draft, LowerError> {
    let builder = up_to_loss(rewritten, training, Activations::Unread)?;
    let pieces = builder.pieces();
    Ok(drafted(builder, training, &pieces).0)
}

/// Returns the training step in the backward order that was found to need least memory at these sizes. More or fewer
/// [activations](crate::lower::analysis::activation_slopes) save nothing in it.
pub(in crate::lower) fn in_least_memory(
    rewritten: &Rewritten<'_>,
    training: Training<'_>,
    setting: &Sizes,
) -> Result<Draft, LowerError> {
    let built = |activations| up_to_loss(rewritten, training, activations);
    let again = match setting.renormalises && normalises(&rewritten.graph) {
        true => renormalised(built(Activations::All)?, training, setting),
        false => None,
    };
    let again = match again {
        // No order of a step that keeps these outputs needs as little.
        Some(again) if again.peak + again.keeping / PART < again.keeping => return Ok(again.draft),
        again => again.map(|again| (again.draft, again.peak)),
    };
    let (mut draft, mut peak, is_near) = least(built(Activations::Unread)?, training, setting);
    let other = match is_near {
        true => None,
        false => built(Activations::All).ok().map(|builder| least(builder, training, setting)),
    };
    for (found, less) in other.map(|(found, less, _)| (found, less)).into_iter().chain(again) {
        if less + peak / PART < peak {
            (draft, peak) = (found, less);
        }
    }
    Ok(draft)
}

/// A step that recomputes [outputs of normalisations](crate::lower::schedule::recompute_norms), in the default order otherwise.
#[derive(Clone)]
struct Again {
    draft: Draft,
    /// The peak in bytes, and the first operation index at which it is reached.
    peak: u64,
    at: usize,
    /// The bytes that are alive at the loss, and those that would be if these outputs were kept.
    kept: u64,
    keeping: u64,
}

/// Returns the step that recomputes such outputs next to gradients. If that makes the peak, some are recomputed on their own. `None` if there are
/// no such outputs, or the step is too large for any plan.
fn renormalised(builder: Builder<'_>, training: Training<'_>, setting: &Sizes) -> Option<Again> {
    let mut all = builder.renormalised();
    if all.is_empty() {
        return None;
    }
    let pieces = builder.pieces();
    let step = |all: &[Renormalised]| {
        let (mut draft, _) = drafted(builder.clone(), training, &waiting(&pieces, all));
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
    // Tensors that waiting gradients read are alive together with the gradient of the normalisation's input. If that is the peak, they should not
    // wait.
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

/// Returns the step in the order that was found to need least memory, its peak in bytes, and a flag. The flag is true if the default order needs
/// little more than any order must.
fn least(builder: Builder<'_>, training: Training<'_>, setting: &Sizes) -> (Draft, u64, bool) {
    let pieces = builder.pieces();
    let (rule, begins) = drafted(builder.clone(), training, &pieces);
    let Some(peak) = most_alive(&rule, rule.operations.len(), setting) else { return (rule, u64::MAX, true) };
    if pieces.is_empty() {
        return (rule, peak, true);
    }
    let model = Model::new(&builder, training, &pieces, (&rule, &begins), setting);
    if peak.saturating_sub(model.floor()) <= peak / PART {
        return (rule, peak, true);
    }
    if let Some(order) = search::search(&model) {
        let order: Vec<GradientPiece> = order.into_iter().map(|at| pieces[at]).collect();
        let (found, _) = drafted(builder, training, &order);
        if let Some(less) =
            most_alive(&found, found.operations.len(), setting).filter(|&less| less + peak / PART < peak)
        {
            return (found, less, false);
        }
    }
    (rule, peak, false)
}
