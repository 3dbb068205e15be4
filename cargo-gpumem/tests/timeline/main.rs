//! The command `timeline`: its formats against the program that they show, and its messages.

mod browser;
mod formats;
mod messages;
mod models;
mod pictures;

use gpumem_core::memory::budget::Budget;
use gpumem_core::memory::place::Placed;
use gpumem_language::source::{Overrides, declared};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Networks that have every category of tensors between them.
const NETWORKS: [(&str, &str); 4] = [
    ("Plain", include_str!("networks/plain.rs")),
    ("Parts", include_str!("networks/parts.rs")),
    ("Parked", include_str!("networks/parked.rs")),
    ("Writer", include_str!("networks/writer.rs")),
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs one of the commands in a folder.
fn command(folder: &Path, name: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
    command.args(["gpumem", name]).args(arguments).current_dir(folder);
    command.output().unwrap()
}

fn timeline(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, "timeline", arguments)
}

/// Returns what the command prints.
fn printed(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = timeline(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    output.stdout
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    serde_json::from_slice(&printed(folder, &[arguments, &["-o", "-", "--format", "json"]].concat())).unwrap()
}

fn failure(folder: &Path, arguments: &[&str]) -> String {
    let output = timeline(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    text(&output.stderr)
}

/// Writes all networks to files of a new folder: `Plain` to `plain.rs`.
fn sources() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, source) in NETWORKS {
        std::fs::write(folder.path().join(file(name)), source).unwrap();
    }
    folder
}

fn file(name: &str) -> String {
    format!("{}.rs", name.to_lowercase())
}

/// Returns the program of a network with the place of each tensor, without the command.
fn placed(source: &str) -> (Placed, Budget) {
    let plan = declared(source, &Overrides::default()).unwrap().plan().unwrap();
    let (placed, budget) = plan.placed().unwrap();
    assert_eq!(budget.lines, plan.budget(&plan.cards).unwrap().lines);
    (placed, budget)
}

/// Returns a column of numbers.
fn column(plan: &Value, table: &str, name: &str) -> Vec<u64> {
    let column = plan[table][name].as_array().unwrap_or_else(|| panic!("no column {table}.{name}"));
    column.iter().map(|value| value.as_u64().unwrap_or(u64::MAX)).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}
