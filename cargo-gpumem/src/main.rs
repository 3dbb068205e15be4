//! `cargo gpumem`: which cards the networks of a crate fit, with which batch, and what a change costs.
//!
//! It builds the crate, reads the records that every network leaves in its object files, and plans them itself: with the
//! same functions that the compiler evaluates, at any batch, precision and card.

mod artefacts;
mod cards;
mod diff;
mod fit;
mod network;
mod options;
mod packages;
mod plan;
mod show;
mod text;

use clap::Parser;
use options::{Cargo, Command};
use std::process::ExitCode;

/// What went wrong, for people.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let Cargo::Gpumem(arguments) = Cargo::parse();
    let result = match arguments.command {
        Command::Fit(arguments) => fit::run(&arguments),
        Command::Show(arguments) => show::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Cards(arguments) => cards::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(2)
        }
    }
}
