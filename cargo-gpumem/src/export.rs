//! Implements `cargo gpumem export`, which writes a network as an ONNX file.

use crate::Failure;
use crate::artefacts::networks_of;
use crate::built::{Built, chosen, only, single};
use crate::files;
use crate::options::{Export, is_source};
use crate::output::say;
use crate::outputs::refuse;
use gpumem_import::write::{self, Safetensors};
use gpumem_language::source::Overrides;
use std::path::Path;
use std::process::ExitCode;

pub fn run(arguments: &Export) -> Result<ExitCode, Failure> {
    let data = write::onnx::data_file(&arguments.output);
    refuse(&[&arguments.output, &data], &[&arguments.weights], arguments.force)?;
    let built = match arguments.network.as_deref().filter(|name| is_source(name)) {
        Some(file) => files::networks(&[file.to_string()], &Overrides::default())?,
        None => built(arguments)?,
    };
    let network = only(&built)?;
    let mut weights = Safetensors::open(&arguments.weights)?;
    let blueprint = &network.blueprint;
    let mut tensor = |name: &str, shape: &[u64]| weights.tensor(name, shape);
    write::onnx::write(&blueprint.graph, &blueprint.outputs, &network.name, &mut tensor, &arguments.output)?;
    say(&format!("wrote `{}` to {}", network.name, arguments.output.display()));
    Ok(ExitCode::SUCCESS)
}

/// Builds the crate, and returns the network that was named, or the only one.
fn built(arguments: &Export) -> Result<Built, Failure> {
    let built = chosen(networks_of(&arguments.build, Path::new("."), None)?, arguments.network.as_slice())?;
    let network = if arguments.network.is_some() { single(&built.networks)? } else { only(&built)? };
    Ok(Built { networks: vec![network.clone()], ..Built::default() })
}
