//! The reports of commands on the bytes of a binary, for tests that change these bytes.

use crate::built::{Built, networks};
use crate::options::{Cargo, Command};
use crate::{artefacts, diff, show};
use clap::Parser as _;
use std::path::Path;

/// Parses the words of a command line. `None` if they are not a command.
fn command(words: &[&str]) -> Option<Command> {
    let Cargo::Gpumem(arguments) = Cargo::try_parse_from(["cargo", "gpumem"].iter().chain(words)).ok()?;
    Some(arguments.command)
}

/// Options of `show`, one set for each of its reports.
const SHOWN: [&[&str]; 4] = [&["--format", "table"], &["--format", "json"], &["--inference"], &["--batch", "3"]];

/// The number of reports that [`report`] can make.
pub const REPORTS: usize = SHOWN.len() + 2;

/// Returns the texts that one command prints for a file with these bytes. `which` chooses the command.
///
/// `show` prints each network alone, `diff` compares all with those of `before`. Reports that fail are left out.
pub fn report(before: &[u8], bytes: &[u8], which: usize) -> Vec<String> {
    let read = |bytes: &[u8]| {
        let (records, unreadable) = artefacts::records_of(Path::new("file"), bytes);
        let built = networks(records, &|_| None);
        Built { unreadable: built.unreadable + unreadable, ..built }
    };
    let built = read(bytes);
    if let Some(options) = SHOWN.get(which) {
        let shown = built.networks.iter().filter_map(|network| {
            // A name may begin like an option.
            let words: Vec<&str> = ["show"].iter().chain(*options).copied().chain(["--", &network.name]).collect();
            let Some(Command::Show(arguments)) = command(&words) else { return None };
            show::report(network, &arguments, None).ok()
        });
        return shown.collect();
    }
    let format = if which == SHOWN.len() { "table" } else { "json" };
    let Some(Command::Diff(arguments)) = command(&["diff", "main", "--format", format]) else { return Vec::new() };
    diff::report(&read(before).networks, &built.networks, &arguments).into_iter().collect()
}
