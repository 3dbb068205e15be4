//! The command `cargo gpumem`: it shows which cards the networks of a crate fit, with which batch, and how a change affects memory.
//! [`Request`] asks it about a model in a file, for programs that are no command line.
//!
//! It builds the crate and reads the records that every network leaves in its object files. Then it plans the networks itself, with the functions
//! that the compiler evaluates, at any batch, precision and card.

// Some functions are for `import` alone.
#![cfg_attr(not(feature = "import"), allow(dead_code))]

mod advise;
mod answer;
mod artefacts;
mod bars;
mod built;
mod cards;
#[cfg(feature = "import")]
mod check;
mod chosen;
mod diff;
mod explain;
mod export;
mod facts;
mod files;
mod fit;
#[cfg(feature = "import")]
mod import;
mod models;
mod network;
mod new;
mod options;
mod output;
mod outputs;
mod pack;
mod packages;
mod plan;
#[doc(hidden)]
pub mod reports;
mod request;
mod show;
mod terminal;
mod text;
mod timeline;
mod together;
mod values;
#[cfg(feature = "watch")]
mod watch;

pub use request::{Refused, Report, Request, bytes, cards};

use clap::Parser;
use options::{Cargo, Command};
use std::ffi::OsString;
use std::process::ExitCode;

/// An error with a message for the user.
type Failure = Box<dyn std::error::Error>;

/// Runs the command line of this process, and returns its exit code.
pub fn main() -> ExitCode {
    run().unwrap_or_else(|failure| {
        output::say(&format!("error: {failure}"));
        ExitCode::from(2)
    })
}

fn run() -> Result<ExitCode, Failure> {
    let Cargo::Gpumem(arguments) = match Cargo::try_parse_from(arguments(std::env::args_os().collect())) {
        Ok(cargo) => cargo,
        // clap returns the help, the version, and errors of the command line in this way.
        Err(told) => {
            output::written(told.print())?;
            return Ok(ExitCode::from(u8::try_from(told.exit_code()).unwrap_or(2)));
        }
    };
    match arguments.command {
        Command::Fit(arguments) => match arguments.of_files()? {
            Some(overrides) => models::run(&arguments, &overrides),
            None => fit::run(&arguments),
        },
        #[cfg(feature = "import")]
        Command::Import(arguments) => import::run(&arguments),
        Command::New(arguments) => new::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Show(arguments) => show::run(&arguments),
        Command::Timeline(arguments) => timeline::run(&arguments),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Pack(arguments) => pack::run(&arguments),
        #[cfg(feature = "watch")]
        Command::Watch(arguments) => watch::run(&arguments),
        Command::Cards(arguments) => cards::run(&arguments),
    }
}

/// Returns the command line with the name of the subcommand. cargo passes it, but a user who runs `cargo-gpumem fit` leaves it out.
fn arguments(mut all: Vec<OsString>) -> Vec<OsString> {
    if all.is_empty() {
        all.push("cargo".into());
    }
    if all.get(1).is_none_or(|first| first != "gpumem") {
        all.insert(1, "gpumem".into());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::arguments;
    use std::ffi::OsString;

    #[test]
    fn the_subcommand_is_named_by_cargo_or_not_at_all() {
        let of = |all: &[&str]| arguments(all.iter().map(OsString::from).collect());
        let expected = |all: &[&str]| all.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(of(&["cargo-gpumem", "gpumem", "fit"]), expected(&["cargo-gpumem", "gpumem", "fit"]));
        assert_eq!(of(&["cargo-gpumem", "fit", "gpumem"]), expected(&["cargo-gpumem", "gpumem", "fit", "gpumem"]));
        assert_eq!(of(&["cargo-gpumem"]), expected(&["cargo-gpumem", "gpumem"]));
        assert_eq!(of(&[]), expected(&["cargo", "gpumem"]));
    }
}
