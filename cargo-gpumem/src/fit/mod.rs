//! Implements `cargo gpumem fit`, which compares networks with cards.

mod diagnostics;
pub mod github;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod table;

use crate::Failure;
use crate::answer::{Answer, Answers, NO_CARD, answers, found};
use crate::artefacts::networks_of;
use crate::built::{ANOTHER_VERSION, chosen, unread};
use crate::options::{Build, Fit, Format};
use crate::output::print;
use crate::text::{bytes, name};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

pub fn run(arguments: &Fit) -> Result<ExitCode, Failure> {
    if arguments.message_format.is_some() {
        let code = for_an_editor(arguments);
        diagnostics::print_end(matches!(code, Ok(0)))?;
        return code.map(ExitCode::from);
    }
    let built = chosen(networks_of(&arguments.build, Path::new("."), None)?, &arguments.networks)?;
    let unreadable = built.unreadable;
    let found = answers(built, BTreeMap::new(), arguments)?;
    print(&match arguments.format {
        Format::Table => table::text(&found),
        Format::Json => format!("{:#}\n", json::as_json(&found, unreadable)),
        Format::Github => github::annotations(&found),
        Format::Junit => junit::report(&found)?,
        Format::Markdown => markdown::matrix(&found),
    })?;
    code(&found, unreadable, arguments).map(ExitCode::from)
}

/// Prints the messages of the build, and after them the answers as such messages. Returns the exit code.
fn for_an_editor(arguments: &Fit) -> Result<u8, Failure> {
    let build = Build { prints_messages: true, ..arguments.build.clone() };
    let mut built = chosen(networks_of(&build, Path::new("."), None)?, &arguments.networks)?;
    let (unreadable, workspace) = (built.unreadable, built.workspace.take());
    let found = found(built, BTreeMap::new(), arguments)?;
    let workspace = workspace.ok_or("the networks were not built here")?;
    diagnostics::print_all(&found, arguments.all, &workspace)?;
    if found.answers.is_empty() {
        return Err(NO_CARD.into());
    }
    code(&found, unreadable, arguments)
}

/// Returns the exit code of answers. Fails if there are records that could not be read, since their networks have none.
fn code(found: &Answers, unreadable: usize, arguments: &Fit) -> Result<u8, Failure> {
    if unreadable > 0 {
        return Err(format!("{}: {ANOTHER_VERSION}", unread(unreadable)).into());
    }
    let is_refused = found.answers.iter().any(|answer| answer.left().is_err());
    Ok(u8::from(is_refused && !arguments.all))
}

/// Returns an answer as a sentence.
fn sentence(answer: &Answer) -> String {
    let verdict = match answer.left() {
        Ok(left) => format!("fits, {} left", bytes(left)),
        Err(over) => format!("is over by {}", bytes(over)),
    };
    let at = answer.batch.map(|batch| format!(" at batch {batch}")).unwrap_or_default();
    let largest = answer.largest_batch.map(|batch| format!("; the largest batch is {batch}")).unwrap_or_default();
    let cache = answer.longest_cache.map(|steps| format!(", the longest cache {steps} steps")).unwrap_or_default();
    let (label, card) = (&answer.label, name(answer.device));
    let (needs, has) = (bytes(answer.total), bytes(answer.device.usable()));
    format!("`{label}`{at} needs {needs} and {verdict} ({card} has {has}){largest}{cache}")
}
