//! Implements `cargo gpumem import`, which writes a model of PyTorch as a network.

use crate::Failure;
use crate::models::read::{self, USUAL_OPTIMIZER};
use crate::models::{USUAL_BATCH, table};
use crate::options::{Device, Import};
use crate::output::{print, say};
use gpumem_import::tree;
use gpumem_language::source::Overrides;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;

pub fn run(arguments: &Import) -> Result<ExitCode, Failure> {
    let file = arguments.file.display();
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
    if let Some(weights) = &arguments.weights {
        refuse_existing(weights, arguments.force)?;
        let count = gpumem_import::weights::write(&arguments.file, &imported.weights(), weights)?;
        say(&format!("wrote {count} tensors to {}", weights.display()));
    }
    match &arguments.output {
        None => print(&text)?,
        Some(path) => {
            write(path, &text, arguments.force)?;
            say(&format!("wrote {} lines to {}", text.lines().count(), path.display()));
        }
    }
    Ok(ExitCode::from(if imported.source.is_some() { 0 } else { 2 }))
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

/// Fails if a file exists that must not be replaced.
pub fn refuse_existing(path: &Path, may_replace: bool) -> Result<(), Failure> {
    match path.exists() && !may_replace {
        true => Err(format!("{} exists; `--force` replaces it", path.display()).into()),
        false => Ok(()),
    }
}

/// Writes a source. A file that exists is replaced if the user says so.
fn write(path: &Path, text: &str, may_replace: bool) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    let options = if may_replace { options.create(true).truncate(true) } else { options.create_new(true) };
    let written = options.write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => format!("{} exists; `--force` replaces it", path.display()).into(),
        _ => format!("cannot write {}: {error}", path.display()).into(),
    })
}
