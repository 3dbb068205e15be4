//! Implements `cargo gpumem fit`, which compares networks with cards.

pub mod github;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod table;

use crate::Failure;
use crate::answer::{Answer, answers};
use crate::artefacts::networks_of;
use crate::built::{ANOTHER_VERSION, chosen, unread};
use crate::options::{Fit, Format};
use crate::output::print;
use crate::text::{bytes, name};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

pub fn run(arguments: &Fit) -> Result<ExitCode, Failure> {
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
    // The networks of unreadable records have no answer.
    if unreadable > 0 {
        return Err(format!("{}: {ANOTHER_VERSION}", unread(unreadable)).into());
    }
    let refused = found.answers.iter().any(|answer| answer.left().is_err());
    Ok(ExitCode::from(u8::from(refused && !arguments.all)))
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
