//! The modules of `cargo-gpumem` that read records, as a library.

// The command itself, which builds and prints, is not part of the library.
#![allow(dead_code)]

#[path = "../../../cargo-gpumem/src/answer.rs"]
mod answer;
#[path = "../../../cargo-gpumem/src/artefacts.rs"]
mod artefacts;
#[path = "../../../cargo-gpumem/src/built.rs"]
mod built;
#[path = "../../../cargo-gpumem/src/cards.rs"]
mod cards;
#[path = "../../../cargo-gpumem/src/diff.rs"]
mod diff;
#[path = "../../../cargo-gpumem/src/facts.rs"]
mod facts;
#[path = "../../../cargo-gpumem/src/files.rs"]
mod files;
#[path = "../../../cargo-gpumem/src/fit/mod.rs"]
mod fit;
#[path = "../../../cargo-gpumem/src/network.rs"]
mod network;
#[path = "../../../cargo-gpumem/src/options.rs"]
mod options;
#[path = "../../../cargo-gpumem/src/output.rs"]
mod output;
#[path = "../../../cargo-gpumem/src/packages.rs"]
mod packages;
#[path = "../../../cargo-gpumem/src/plan.rs"]
mod plan;
#[path = "../../../cargo-gpumem/src/show.rs"]
mod show;
#[path = "../../../cargo-gpumem/src/text.rs"]
mod text;
#[path = "../../../cargo-gpumem/src/together.rs"]
mod together;
#[path = "../../../cargo-gpumem/src/values.rs"]
mod values;

use built::{Built, networks};
use clap::Parser as _;
use options::{Cargo, Command};
use std::path::Path;

type Failure = Box<dyn std::error::Error>;

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
            let all = Built { networks: built.networks.clone(), unreadable: built.unreadable, ..Built::default() };
            show::report(all, &arguments).ok()
        });
        return shown.collect();
    }
    let format = if which == SHOWN.len() { "table" } else { "json" };
    let Some(Command::Diff(arguments)) = command(&["diff", "main", "--format", format]) else { return Vec::new() };
    diff::report(&read(before).networks, &built.networks, &arguments).into_iter().collect()
}

/// Returns an object file with this section of records, which the command can read.
pub fn object(section: &[u8]) -> Vec<u8> {
    use object::write::{Object, StandardSegment};
    use object::{Architecture, BinaryFormat, Endianness, SectionKind};
    let mut file = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let segment = file.segment_name(StandardSegment::Data).to_vec();
    let id = file.add_section(segment, b".gpumem".to_vec(), SectionKind::ReadOnlyData);
    file.append_section_data(id, section, 1);
    file.write().unwrap_or_default()
}
