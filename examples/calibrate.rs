//! Measures what a card takes beside an arena, and prints a row for the table of cards: see `docs/reference/cards.md`.
//!
//! ```text
//! cargo run --release --features cuda --example calibrate [-- NUMBER] [--json]
//! ```

use gpumem::{Calibration, Cuda, Stages, calibrate};
use serde_json::{Value, json};
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: impl Iterator<Item = String>) -> Result<String, Box<dyn Error>> {
    let (flags, numbers): (Vec<String>, Vec<String>) = arguments.partition(|argument| argument == "--json");
    let number = numbers.first().map_or(Ok(0), |text| text.parse())?;
    let found = calibrate(&Cuda::new(number)?)?;
    Ok(if flags.is_empty() { found.to_string() } else { figures(&found).to_string() })
}

/// All of it for programs, memory in bytes.
fn figures(found: &Calibration) -> Value {
    let stages = |stages: Stages| {
        json!({
            "arena": stages.arena,
            "handles": stages.handles,
            "trials": stages.trials,
            "modules": stages.modules,
            "graphs": stages.graphs,
            "process": stages.process,
            "beside": stages.beside(),
        })
    };
    let version = |version: Option<(i32, i32)>| version.map(|(major, minor)| format!("{major}.{minor}"));
    json!({
        "row": found.to_string(),
        "name": found.name,
        "slug": found.slug(),
        "capability": format!("{}.{}", found.capability.0, found.capability.1),
        "multiprocessors": found.multiprocessors,
        "usable": found.usable,
        "context": found.context,
        "given_back_by_limits": found.given_back,
        "probe": found.probe.map(stages),
        "most_beside": found.most_beside,
        "driver": found.driver,
        "cuda": version(found.versions.cuda),
        "nvrtc": version(found.versions.compiler),
        "cublaslt": version(found.versions.products),
        "cudnn": version(found.versions.convolutions),
    })
}
