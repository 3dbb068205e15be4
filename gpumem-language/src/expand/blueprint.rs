//! The blueprint of a network, from which its programs are lowered here and by tools.

use super::target_cards::room_of_largest;
use super::{Readings, assumed_sizes, report};
use crate::errors::Errors;
use crate::resolve::{Declared, Resolved};
use crate::settings::reading::Reading;
use crate::syntax::Source;
use gpumem_core::graph::{Elements, NodeId};
use gpumem_core::lower::{Blueprint, LowerError, PartStep, Parts, Steps};
use syn::ext::IdentExt as _;

/// Returns the blueprint that the record of a network has. `None` after a mistake, which is reported.
///
/// Unlike [`expand`], lowers no program but those that settle `conv_norm`. What only the lowering of others would find is not reported.
pub(crate) fn blueprint(
    source: &Source,
    resolved: &Resolved,
    readings: &Readings<'_>,
    errors: &mut Errors,
) -> Option<Blueprint> {
    let outputs = resolved.outputs.as_ref()?;
    check_cache(readings, (resolved.inputs.as_ref()?, resolved.promised.as_ref()?), errors)?;
    let settled = || {
        let (mut first, others) = blueprints(source, resolved, outputs, readings);
        first.settle_conv_norm(&assumed_sizes::least(readings))?;
        let mut settled = Vec::new();
        for (mut step, train) in others.into_iter().zip(&readings.trains).skip(1) {
            step.settle_conv_norm(&assumed_sizes::least(&readings.only(train)))?;
            settled.push(step);
        }
        copy_settled(&mut first, settled.iter());
        check_inputs(source, &first)?;
        Ok(first)
    };
    settled().map_err(|error| report(source, resolved, &error, errors)).ok()
}

/// Returns the blueprint of a network as it is written, and that of each training step.
pub(super) fn blueprints(
    source: &Source,
    resolved: &Resolved,
    outputs: &[NodeId],
    readings: &Readings<'_>,
) -> (Blueprint, Vec<Blueprint>) {
    let part = |train: &Reading<'_>| PartStep {
        name: train.constant.clone(),
        trains: train.trains.clone(),
        steps: steps_of(train),
    };
    let named = readings.trains.iter().filter(|_| source.has_named_steps());
    let mut graph = resolved.graph.clone();
    graph.lines.clone_from(&resolved.lines);
    let blueprint = Blueprint {
        graph,
        outputs: outputs.to_vec(),
        training: readings.train().map(steps_of),
        cached: readings.cached(),
        parts: Parts { at: 0, all: named.map(part).collect() },
    };
    let steps = blueprint.steps();
    (blueprint, steps)
}

/// Copies the settled `conv_norm` of each step into the blueprint of the first. A tool then lowers it to the program that is generated here.
pub(super) fn copy_settled<'b>(first: &mut Blueprint, others: impl Iterator<Item = &'b Blueprint>) {
    let of = |blueprint: &Blueprint| blueprint.training.as_ref().map(|steps| steps.conv_norm);
    let settled: Vec<_> = [of(first)].into_iter().chain(others.map(of)).collect();
    for (part, settled) in first.parts.all.iter_mut().zip(settled) {
        settled.into_iter().for_each(|settled| part.steps.conv_norm = settled);
    }
}

/// Checks that `forward` and the step of `TRAIN` take the same inputs. Every other step has inputs of its own.
pub(super) fn check_inputs(source: &Source, blueprint: &Blueprint) -> Result<(), LowerError> {
    let Some(part) = blueprint.parts.all.first().filter(|part| part.name == "TRAIN") else { return Ok(()) };
    if blueprint.inputs_of(part) == blueprint.inputs_before(&blueprint.outputs) {
        return Ok(());
    }
    let name = source.declaration.name.unraw();
    let message = format!(
        "the loss of `TRAIN` depends on other inputs than the outputs of `{name}` do; give the constant another name, as `const STEP`, \
         and make its steps with `{name}::step(&mut net)`, which takes the inputs of its loss"
    );
    Err(LowerError { row: None, message })
}

/// Checks that a network with a `cache` decodes tokens. `None` after a mistake, which is reported.
pub(super) fn check_cache(
    readings: &Readings<'_>,
    (inputs, promised): (&[Declared], &[Declared]),
    errors: &mut Errors,
) -> Option<()> {
    let Some((_, place)) = readings.infer.as_ref().and_then(|infer| infer.cached) else { return Some(()) };
    if takes_tokens(inputs, promised) {
        return Some(());
    }
    let counts = inputs.iter().any(|input| input.form.counts_steps());
    let text = "`cache` needs a network from tokens to a row for each of them, as `fn forward(tokens: Tokens<1024>) -> \
                TokenLogits<1024, 50257>`";
    let counted = "`cache` counts steps as they come and knows no `lengths` and `segments`; decode with a network of the same layers \
                   without them";
    errors.add(place, if counts { counted } else { text });
    None
}

/// True if a network takes one list of tokens and returns one row for each of them.
fn takes_tokens(inputs: &[Declared], promised: &[Declared]) -> bool {
    match (inputs, promised) {
        ([input], [output]) => {
            let is_list = input.value().elements == Elements::Indices && input.dimensions.len() == 1;
            is_list && output.dimensions.len() == 2 && input.dimensions[0] == output.dimensions[0]
        }
        _ => false,
    }
}

/// Returns the facts of a training step that its program depends on.
fn steps_of(train: &Reading<'_>) -> Steps {
    let is_lowered_once = train.known_batch.is_none() && room_of_largest(train).is_none();
    Steps {
        loss: train.loss.terms.clone(),
        moments: train.moments,
        update: train.update,
        checkpoint: train.checkpoint,
        descent: train.descent,
        conv_norm: train.conv_norm,
        ordered_at: is_lowered_once.then_some(assumed_sizes::NOMINAL),
    }
}
