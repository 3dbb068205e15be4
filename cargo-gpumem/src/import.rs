//! Implements `cargo gpumem import`, which writes a model of PyTorch as a network.

use crate::Failure;
use crate::check::{self, Verdict};
use crate::models::read::{self, USUAL_OPTIMIZER};
use crate::models::{USUAL_BATCH, table};
use crate::options::{Device, Import};
use crate::output::{print, say};
use crate::outputs::{Staged, keep, refuse};
use gpumem_import::tree;
use gpumem_import::weights::Tensors;
use gpumem_language::source::Overrides;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(arguments: &Import) -> Result<ExitCode, Failure> {
    let file = arguments.file.display();
    refuse_outputs(arguments)?;
    let options = options(arguments)?;
    let imported = read::model(&arguments.file, &options, arguments.inference)?;
    if !imported.missing.is_empty() {
        say(&table::missing(&imported.missing, imported.operations));
    }
    let text = match &imported.source {
        Some(source) => source.clone(),
        None if arguments.partial => imported.parts(&options),
        None => {
            return Err(
                format!("{file} cannot be written whole; `--partial` writes the modules that can be said").into()
            );
        }
    };
    if text.is_empty() {
        return Err(format!("{file}: no module of it can be said").into());
    }
    let notes = table::notes(&imported.notes);
    if !notes.is_empty() {
        say(notes.trim_end());
    }
    let mut staged = Vec::new();
    if let Some(weights) = &arguments.weights {
        let part = Staged::new(weights)?;
        let count = Tensors::open(&arguments.file, &imported.weights(), arguments.inference)?.write(part.part())?;
        staged.push(part.told(format!("{count} tensors")));
    }
    if let Some(output) = &arguments.output {
        let part = Staged::new(output)?;
        part.write(&text)?;
        staged.push(part.told(format!("{} lines", text.lines().count())));
    }
    let verdict = match (arguments.check, &imported.source) {
        (false, _) => None,
        (true, Some(source)) => Some(check::run(arguments, &imported, source)?),
        (true, None) => {
            say("outputs were not compared: the network is written in parts");
            Some(Verdict::NotCompared)
        }
    };
    keep(staged, arguments.force)?;
    if arguments.output.is_none() {
        print(&text)?;
    }
    Ok(ExitCode::from(match verdict {
        Some(Verdict::Failed) => 1,
        Some(Verdict::NotCompared) => 2,
        Some(Verdict::Passed) | None => {
            if imported.source.is_some() {
                0
            } else {
                2
            }
        }
    }))
}

/// Fails if an output cannot be written where it is asked for, before anything is read.
fn refuse_outputs(arguments: &Import) -> Result<(), Failure> {
    let samples = arguments.samples.clone().unwrap_or_else(|| check::beside(&arguments.file));
    let outputs: Vec<&Path> = arguments.weights.iter().chain(&arguments.output).map(PathBuf::as_path).collect();
    refuse(&outputs, &[&arguments.file, &samples], arguments.force)
}

/// Returns the settings of the network that is printed.
fn options(arguments: &Import) -> Result<tree::Options, Failure> {
    let mut overrides = Overrides::default();
    if let Some(optimizer) = &arguments.optimizer {
        overrides.set_optimizer(optimizer)?;
    }
    let mut cards = Vec::new();
    for device in &arguments.cards {
        match device {
            Device::Known(card) => cards.push(card.constant),
            Device::Size(_) => return Err("a source names cards of the table; `cargo gpumem cards` lists them".into()),
        }
    }
    let mut fields = Vec::new();
    if let Some(precision) = arguments.precision {
        fields.push(format!("precision: {}", precision.name()));
    }
    if let Some(checkpoint) = &arguments.checkpoint {
        fields.push(format!("checkpoint: {checkpoint}"));
    }
    if !cards.is_empty() {
        fields.push(format!("cards: [{}]", cards.join(", ")));
    }
    let name = arguments.name.clone();
    let name = name.or_else(|| Some(arguments.file.file_name()?.to_str()?.to_string()));
    let optimizer = overrides.field("optimizer").unwrap_or(USUAL_OPTIMIZER).to_string();
    Ok(tree::Options {
        name: name.unwrap_or_else(|| "Model".into()),
        batch: arguments.batch.unwrap_or(USUAL_BATCH),
        optimizer,
        loss: None,
        fields,
    })
}
