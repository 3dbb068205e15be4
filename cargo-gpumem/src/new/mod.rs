//! Implements `cargo gpumem new`, which makes a crate with a network that trains at once: a small one, or a model of PyTorch.

mod source;

use crate::Failure;
use crate::models::USUAL_BATCH;
use crate::models::read::{self, Imported, USUAL_OPTIMIZER};
use crate::models::table;
use crate::options::{Device, New};
use crate::output::say;
use gpumem_core::cards::{self, Card};
use gpumem_import::tree;
use gpumem_import::weights::Tensors;
use source::Network;
use std::path::Path;
use std::process::ExitCode;

/// The file with the weights of a model, in the new crate.
const WEIGHTS: &str = "model.safetensors";

/// Cards with a feature in the new crate, if none is named.
const USUAL_CARDS: [&str; 4] = ["t4", "rtx3060", "rtx4090", "h100-sxm"];

pub fn run(arguments: &New) -> Result<ExitCode, Failure> {
    let name = crate_name(&arguments.path)?;
    if arguments.path.exists() {
        return Err(format!("{} exists already; name another folder", arguments.path.display()).into());
    }
    let cards = known(&arguments.cards)?;
    let dependency = dependency(arguments.gpumem.as_deref())?;
    let imported = arguments.from.as_deref().map(|file| imported(file, arguments)).transpose()?;
    let network = match &imported {
        Some((_, text)) => Network::of_model(text)?,
        None => Network::small(),
    };
    // The crate is made beside its place and moved there, so that a failure leaves none.
    let parent = arguments.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(|error| format!("cannot make {}: {error}", parent.display()))?;
    let part = tempfile::Builder::new().prefix(".cargo-gpumem-").tempdir_in(parent);
    let part = part.map_err(|error| format!("cannot make a folder in {}: {error}", parent.display()))?;
    for (path, text) in files(&name, &dependency, &cards, &network) {
        write(&part.path().join(path), &text)?;
    }
    if let (Some((imported, _)), Some(file)) = (&imported, &arguments.from) {
        Tensors::open(file, &imported.weights(), false)?.write(&part.path().join(WEIGHTS))?;
    }
    make_readable(part.path())?;
    let made = part.keep();
    if let Err(error) = std::fs::rename(&made, &arguments.path) {
        let _ = std::fs::remove_dir_all(&made);
        return Err(format!("cannot make {}: {error}", arguments.path.display()).into());
    }
    say(&told(&arguments.path, &cards));
    Ok(ExitCode::SUCCESS)
}

/// Returns the name of the crate in a folder. It must be one that Cargo takes.
fn crate_name(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ['-', '_'].contains(&letter);
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic());
    // A crate of that name could not depend on gpumem.
    let is_own = name.replace('-', "_") == "gpumem";
    if !begins || !name.chars().all(is_plain) || is_own || name == "test" {
        return Err(format!(
            "`{name}` is no name for a crate here: write letters, digits, `-` and `_`, a letter first, as in `my-net`"
        )
        .into());
    }
    Ok(name.into())
}

/// Returns the cards that are named, or the usual ones.
fn known(devices: &[Device]) -> Result<Vec<&'static Card>, Failure> {
    if devices.is_empty() {
        return Ok(USUAL_CARDS.iter().filter_map(|slug| cards::find(slug)).collect());
    }
    let card = |device: &Device| match device {
        Device::Known(card) => Ok(*card),
        Device::Size(_) => Err("a feature is a card of the table; `cargo gpumem cards` lists them".into()),
    };
    devices.iter().map(card).collect()
}

/// Returns the value of the dependency on gpumem, without its features.
fn dependency(folder: Option<&Path>) -> Result<String, Failure> {
    let Some(folder) = folder else { return Ok("git = \"https://github.com/gpumem/gpumem\"".into()) };
    let whole = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    if !whole.join("gpumem-core/Cargo.toml").is_file() {
        return Err(format!("{} has no gpumem-core; name the folder of gpumem's repository", folder.display()).into());
    }
    let path = whole.to_str().ok_or("the path of gpumem is no text")?;
    Ok(format!("path = {path:?}"))
}

/// Reads a model, and returns it with the source of its network.
fn imported(file: &Path, arguments: &New) -> Result<(Imported, String), Failure> {
    let options = tree::Options {
        name: file.file_name().and_then(|name| name.to_str()).unwrap_or("Model").to_string(),
        batch: arguments.batch.unwrap_or(USUAL_BATCH),
        optimizer: USUAL_OPTIMIZER.into(),
        loss: None,
        fields: Vec::new(),
    };
    let imported = read::model(file, &options, false)?;
    if !imported.missing.is_empty() {
        say(&table::missing(&imported.missing, imported.operations));
    }
    let none = || {
        let file = file.display();
        format!(
            "{file} cannot be written whole; `cargo gpumem import {file} --partial` writes the modules that can be said"
        )
    };
    let text = imported.source.clone().ok_or_else(none)?;
    Ok((imported, text))
}

/// Returns the files of a crate, with their places in it.
fn files(name: &str, dependency: &str, cards: &[&Card], network: &Network) -> Vec<(&'static str, String)> {
    vec![
        ("Cargo.toml", manifest(name, dependency, cards)),
        (".gitignore", "/target\n".into()),
        (".github/workflows/fit.yml", workflow(cards)),
        ("README.md", readme(name, cards)),
        ("src/lib.rs", network.library()),
        ("src/main.rs", network.program(&name.replace('-', "_"))),
        ("tests/trains.rs", network.test(&name.replace('-', "_"))),
    ]
}

fn manifest(name: &str, dependency: &str, cards: &[&Card]) -> String {
    let features: String = cards.iter().map(|card| format!("{0} = [\"gpumem/{0}\"]\n", card.slug)).collect();
    format!(
        r#"[package]
name = "{name}"
version = "0.1.0"
edition = "2024"
publish = false

[dependencies]
gpumem = {{ {dependency} }}

[features]
## Runs on a card with CUDA instead of the CPU.
cuda = ["gpumem/cuda"]
# Each of these has the compiler check that a training step fits the card. `cargo gpumem cards` lists more.
{features}
# The network's own code is what `cargo run` without `--release` leaves slow.
[profile.dev.package."*"]
opt-level = 3
"#
    )
}

fn workflow(cards: &[&Card]) -> String {
    let slugs: Vec<&str> = cards.iter().map(|card| card.slug).collect();
    format!(
        r#"# Refuses a change with which the network no longer fits a card, or no longer trains.
name: fit
on: [push, pull_request]
jobs:
  fits:
    runs-on: ubuntu-latest
    strategy:
      fail-fast: false
      matrix:
        card: [{}]
    steps:
      - uses: actions/checkout@v4
      - run: rustup update stable
      - run: cargo check --features ${{{{ matrix.card }}}}
  trains:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: rustup update stable
      - run: cargo test
"#,
        slugs.join(", ")
    )
}

fn readme(name: &str, cards: &[&Card]) -> String {
    let card = cards.first().map_or("rtx3060", |card| card.slug);
    format!(
        "# {name}\n\n```sh\ncargo run --release                        # trains on the CPU\ncargo run --release --features cuda        # \
         on a card\ncargo check --features {card:<20} # does a step fit this card?\ncargo test                                 # \
         does it learn?\ncargo gpumem fit --all                     # every card, with the largest batch of each\n```\n\nThe \
         network is in `src/lib.rs`, and its data is made up in `batch`: put yours there.\n"
    )
}

/// Writes a file and makes its folder.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    Ok(std::fs::write(path, text).map_err(failed)?)
}

/// Gives a temporary folder, which its owner alone may read, the usual permissions of a folder beside it.
fn make_readable(folder: &Path) -> Result<(), Failure> {
    let usual = std::fs::metadata(folder.join("src"))?.permissions();
    Ok(std::fs::set_permissions(folder, usual)?)
}

/// Returns the commands that a user tries first.
fn told(path: &Path, cards: &[&Card]) -> String {
    let card = cards.first().map_or_else(String::new, |card| format!(" --features {}", card.slug));
    format!("made {0}; try: cd {0} && cargo run --release, and cargo check{card}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_crates() {
        assert_eq!(crate_name(Path::new("some/my-net")).unwrap(), "my-net");
        for wrong in ["1net", "", "..", "a b", "gpumem", "n\u{e4}t", "test"] {
            let message = crate_name(Path::new(wrong)).err().unwrap().to_string();
            assert!(message.contains("is no name for a crate here: write letters"), "{message}");
        }
    }

    #[test]
    fn a_crate_has_a_feature_and_a_check_for_each_card() {
        let cards = known(&[]).unwrap();
        assert_eq!(cards.len(), USUAL_CARDS.len());
        let manifest = manifest("net", "path = \"x\"", &cards);
        assert!(
            manifest.contains("\nrtx3060 = [\"gpumem/rtx3060\"]\n") && manifest.contains("gpumem = { path = \"x\" }")
        );
        assert!(workflow(&cards).contains("card: [t4, rtx3060, rtx4090, h100-sxm]"));
        assert!(workflow(&cards).contains("--features ${{ matrix.card }}"));
        assert!(known(&[Device::Size(1 << 30)]).is_err());
    }
}
