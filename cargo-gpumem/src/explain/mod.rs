//! Implements `cargo gpumem explain`, which says what a term means, in the words of the documentation.

mod pages;

use crate::Failure;
use crate::options::{Explain, Plain};
use crate::output::print;
use crate::terminal::{Colour, LEAST_WIDTH, Terminal, paint};
use gpumem_core::suggest::nearest;
use pages::{Entry, entries};
use serde_json::json;
use std::process::ExitCode;

pub fn run(arguments: &Explain) -> Result<ExitCode, Failure> {
    let entries = entries();
    let terminal = Terminal::of_output();
    let found = match arguments.term.join(" ") {
        term if term.is_empty() => None,
        term => Some(found(&entries, &term)?),
    };
    let chosen: Vec<&Entry> = found.clone().unwrap_or_else(|| entries.iter().collect());
    print(&match (arguments.format, found) {
        (Plain::Json, _) => format!("{:#}\n", as_json(&chosen)),
        (Plain::Table, Some(found)) => explained(&found, terminal),
        (Plain::Table, None) => listed(&entries, terminal),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the entries of a term. If there are none, those whose text has it as code, as `needs at least` is in a line of a refusal.
fn found<'e>(entries: &'e [Entry], term: &str) -> Result<Vec<&'e Entry>, String> {
    let wanted = plain(term);
    let named: Vec<&Entry> =
        entries.iter().filter(|entry| entry.names.iter().any(|name| plain(name) == wanted)).collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let code = format!("`{}`", term.trim_matches('`'));
    let mentioned: Vec<&Entry> = entries.iter().filter(|entry| entry.text.contains(&code)).collect();
    if !mentioned.is_empty() {
        return Ok(mentioned);
    }
    let known: Vec<&str> = entries.iter().flat_map(|entry| &entry.names).map(String::as_str).collect();
    let near = nearest(term, &known).map_or_else(String::new, |near| format!("did you mean `{near}`? "));
    Err(format!("no page explains `{term}`; {near}`cargo gpumem explain` lists all terms"))
}

/// Returns a term as it is compared: in lower case, with spaces in place of `_` and `-`, without backticks and articles.
fn plain(term: &str) -> String {
    let term = term.to_lowercase().replace(['_', '-'], " ").replace('`', "");
    let term = term.trim().trim_end_matches(':');
    term.strip_prefix("the ").unwrap_or(term).to_string()
}

/// Returns each entry with its text and the page that has more.
fn explained(found: &[&Entry], terminal: Option<Terminal>) -> String {
    let width = terminal.map_or(LEAST_WIDTH, |terminal| terminal.width.min(100));
    let one = |entry: &&Entry| {
        let names = entry.names.join(", ");
        let names = if terminal.is_some() { paint(&names, Colour::Bold) } else { names };
        let more = format!("more: {}", entry.address());
        let more = if terminal.is_some() { paint(&more, Colour::Dim) } else { more };
        format!("{names} ({})\n{}{more}\n", entry.kind, wrapped(&entry.text, width))
    };
    found.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// Returns all terms, by kind.
fn listed(entries: &[Entry], terminal: Option<Terminal>) -> String {
    let width = terminal.map_or(LEAST_WIDTH, |terminal| terminal.width);
    let mut text = String::new();
    for group in entries.chunk_by(|a, b| a.kind == b.kind) {
        let kind = if terminal.is_some() { paint(group[0].kind, Colour::Bold) } else { group[0].kind.into() };
        let names: Vec<&str> = group.iter().flat_map(|entry| &entry.names).map(String::as_str).collect();
        text += &format!("{kind}\n{}\n", wrapped(&names.join(", "), width));
    }
    text + "`cargo gpumem explain TERM` says what one of them means\n"
}

/// Breaks a text into lines of at most `width` characters, each with two spaces before it. A longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + word.chars().count() + 3 > width {
            lines += &format!("  {line}\n");
            line.clear();
        }
        let gap = if line.is_empty() { "" } else { " " };
        line += gap;
        line += word;
    }
    if line.is_empty() { lines } else { format!("{lines}  {line}\n") }
}

fn as_json(chosen: &[&Entry]) -> serde_json::Value {
    let entry = |entry: &&Entry| json!({ "names": entry.names, "kind": entry.kind, "text": entry.text, "page": entry.address() });
    json!({ "version": 1, "entries": chosen.iter().map(entry).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_found_as_they_are_written_or_nearly() {
        let entries = entries();
        let kinds = |term: &str| -> Vec<&str> { found(&entries, term).unwrap().iter().map(|it| it.kind).collect() };
        assert_eq!(kinds("batch_io"), ["line of the budget"]);
        assert_eq!(kinds("Batch IO"), ["line of the budget"]);
        assert_eq!(kinds("reserve"), ["line of the budget", "glossary", "memory model"]);
        assert_eq!(kinds("peak at"), ["line of a refusal"]);
        assert_eq!(kinds("peak"), ["glossary"]);
        assert!(kinds("checkpoint").contains(&"field of TRAIN"));
        assert_eq!(kinds("gpumem_cards"), ["environment variable"]);
        // No term, but code in the text of one.
        assert!(found(&entries, "needs at least").unwrap()[0].text.contains("nothing was packed"));
        let message = |term: &str| found(&entries, term).err().unwrap();
        assert_eq!(
            message("reserv3"),
            "no page explains `reserv3`; did you mean `reserve`? `cargo gpumem explain` lists all terms"
        );
        assert_eq!(message("qqqqq"), "no page explains `qqqqq`; `cargo gpumem explain` lists all terms");
    }

    #[test]
    fn lines_are_as_wide_as_asked() {
        assert_eq!(wrapped("one two three", 10), "  one two\n  three\n");
        assert_eq!(wrapped("abcdefghijkl m", 5), "  abcdefghijkl\n  m\n");
        assert_eq!(wrapped("", 5), "");
    }
}
