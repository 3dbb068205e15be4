//! Implements `cargo gpumem import --check`, which compares a network with the model that it was written from.
//!
//! **Stages.** The source is read again as a file of its own, and planned for the cards that it names. Its forward pass is planned for the
//! samples that were recorded, and runs on the CPU in f32 with the weights of the model's file. Its outputs are compared one after the other.
//!
//! **Evaluation.** Recorded outputs are those of `model.eval()`, as the forward pass has them: without Dropout, and with the running
//! statistics of BatchNorm. Outputs of training depend on random numbers.

mod compare;
mod forward;
mod layout;
mod memory;
mod samples;

use crate::Failure;
use crate::answer::answers;
use crate::built::Built;
use crate::models::read::Imported;
use crate::network::Network;
use crate::options::{Fit, Import, Settings};
use crate::output::say;
use crate::plan::steps;
use crate::text::{bytes, count};
use crate::{files, fit};
use compare::{BOUND, Difference};
use forward::Forward;
use gpumem_core::memory::budget::Line;
use gpumem_import::weights::Tensors;
use gpumem_language::source::{Mistake, Overrides, declared};
use samples::Samples;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The result of a check, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The network fits its cards, and its outputs are those that were recorded.
    Passed,
    /// There is nothing to compare with.
    NotCompared,
    /// The network does not fit a card, or has other outputs.
    Failed,
}

/// Checks the source of a network, and tells what was found.
///
/// # Errors
/// The source, the samples or the weights cannot be read, or the machine lacks memory.
pub fn run(arguments: &Import, imported: &Imported, source: &str) -> Result<Verdict, Failure> {
    let file = arguments.file.display().to_string();
    let failure =
        |mistakes: Vec<Mistake>| mistakes.iter().map(|it| format!("{file}: {it}")).collect::<Vec<_>>().join("\n");
    let network = files::network(&file, declared(source, &Overrides::default()).map_err(failure)?);
    let planned = planned(&network)?;
    let path = arguments.samples.clone().unwrap_or_else(|| beside(&arguments.file));
    if arguments.samples.is_none() && !path.exists() {
        say(&missing(&path));
        return Ok(planned.max(Verdict::NotCompared));
    }
    let samples = Samples::open(&path, imported)?;
    Ok(planned.max(compared(arguments, imported, &network, samples)?))
}

/// Returns the file of samples that belongs to a model: `model.samples.safetensors` for `model.pt2`.
pub fn beside(model: &Path) -> PathBuf {
    model.with_extension("samples.safetensors")
}

fn missing(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().display();
    format!(
        "outputs were not compared: there is no {}; `scripts/export.py` writes it, or, in Python:\n    \
         y = model.eval()(x)\n    \
         safetensors.torch.save_file({{\"input.0\": x, \"output.0\": y.detach()}}, \"{name}\")",
        path.display()
    )
}

/// Plans a network for the cards that it names, and tells which of them it fits.
fn planned(network: &Network) -> Result<Verdict, Failure> {
    let has_cards = network.train.iter().chain(&network.infer).any(|written| !written.cards.is_empty());
    if !has_cards {
        for step in steps(network, &Settings::default())? {
            let needs = bytes(step.written()?[Line::Total]);
            let samples = step.plan.batch;
            say(&format!("`{}` at batch {samples} needs {needs}; `--cards` compares it with cards", step.title));
        }
        return Ok(Verdict::Passed);
    }
    let built = Built { networks: vec![network.clone()], ..Built::default() };
    let found = answers(built, BTreeMap::new(), &Fit::default())?;
    say(fit::table::text(&found).trim_end());
    let refused = found.answers.iter().any(|answer| answer.left().is_err());
    Ok(if refused { Verdict::Failed } else { Verdict::Passed })
}

/// Runs the forward pass of a network, and compares its outputs with those that were recorded.
fn compared(
    arguments: &Import,
    imported: &Imported,
    network: &Network,
    mut samples: Samples,
) -> Result<Verdict, Failure> {
    let plan = imported.weights();
    let mut weights = Tensors::open(&arguments.file, &plan, arguments.inference)?;
    let beside = samples.bytes().saturating_add(weights.largest().saturating_mul(3));
    let mut forward = Forward::load(&network.blueprint, samples.batch, beside)?;
    forward.set_weights(&mut weights)?;
    let drawn = forward.set_inputs(imported, &mut samples)?;
    if drawn > 0 {
        let inputs = if drawn == 1 { "1 input is 0 here".into() } else { format!("{drawn} inputs are 0 here") };
        say(&format!("{inputs}, which the model draws at random"));
    }
    forward.run()?;
    let mut worst: Option<(usize, Difference)> = None;
    let mut numbers = 0;
    for index in 0..imported.model.outputs.len() {
        let recorded = samples.output(imported, index)?;
        let found = forward.output(index)?;
        let difference = compare::difference(&found, &recorded).ok_or_else(|| {
            format!(
                "the network returns {} numbers in output {index}, and {} were recorded",
                found.len(),
                recorded.len()
            )
        })?;
        numbers += recorded.len() as u64;
        if worst.as_ref().is_none_or(|(_, worst)| difference.share > worst.share) {
            worst = Some((index, difference));
        }
    }
    let Some((index, worst)) = worst else { return Ok(Verdict::NotCompared) };
    let is_within = worst.share <= BOUND;
    say(&format!(
        "compared {} with {} numbers of {} samples; the greatest difference is {:.1e} of {}, in output {index} at {}: {} for {}; {}",
        outputs(imported.model.outputs.len()),
        count(numbers),
        samples.batch,
        worst.share,
        worst.of,
        worst.place,
        worst.found,
        worst.recorded,
        if is_within {
            format!("{BOUND:e} is allowed")
        } else {
            format!("more than {BOUND:e}, so it is another network")
        },
    ));
    Ok(if is_within { Verdict::Passed } else { Verdict::Failed })
}

fn outputs(count: usize) -> String {
    if count == 1 { "1 output".into() } else { format!("{count} outputs") }
}
