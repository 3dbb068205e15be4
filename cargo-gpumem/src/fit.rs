//! Implements `cargo gpumem fit`, which compares networks with cards.

use crate::Failure;
use crate::answer::{Answer, Answers, answers};
use crate::artefacts::networks_of;
use crate::built::{ANOTHER_VERSION, chosen, unread};
use crate::network::LeftOut;
use crate::options::{Device, Fit, Format};
use crate::output::print;
use crate::text::{bytes, table};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

/// The version of the JSON.
const VERSION: u64 = 1;

pub fn run(arguments: &Fit) -> Result<ExitCode, Failure> {
    let built = chosen(networks_of(&arguments.build, Path::new("."), None)?, &arguments.networks)?;
    let unreadable = built.unreadable;
    let found = answers(built, arguments)?;
    print(&match arguments.format {
        Format::Table => text(&found),
        Format::Json => format!("{:#}\n", as_json(&found, unreadable)),
        Format::Github => annotations(&found),
    })?;
    // The networks of unreadable records have no answer.
    if unreadable > 0 {
        return Err(format!("{}: {ANOTHER_VERSION}", unread(unreadable)).into());
    }
    let refused = found.answers.iter().any(|answer| answer.left().is_err());
    Ok(ExitCode::from(u8::from(refused && !arguments.all)))
}

fn text(found: &Answers) -> String {
    let answers = &found.answers;
    let heading = ["network", "batch", "precision", "needs", "card", "has", "", "largest batch", "longest cache"];
    let mut rows = vec![heading.map(String::from)];
    for answer in answers {
        let verdict = match answer.left() {
            Ok(left) => format!("fits, {} left", bytes(left)),
            Err(over) => format!("over by {}", bytes(over)),
        };
        let usable = answer.device.usable();
        let has = match answer.headroom {
            0 => bytes(usable),
            headroom => format!("{} less {}", bytes(usable), bytes(headroom)),
        };
        let most = |number: u64| if number == 0 { "none".into() } else { number.to_string() };
        rows.push([
            answer.label.clone(),
            answer.batch.map(|batch| batch.to_string()).unwrap_or_default(),
            answer.precision.unwrap_or_default().into(),
            bytes(answer.total),
            answer.device.name(),
            has,
            verdict,
            answer.largest_batch.map(most).unwrap_or_default(),
            answer.longest_cache.map(most).unwrap_or_default(),
        ]);
    }
    // The column is left out if no network keeps a cache, as is usual.
    let has_cache = answers.iter().any(|answer| answer.longest_cache.is_some());
    let without = |[row @ .., _]: [String; 9]| -> [String; 8] { row };
    let text = match has_cache {
        true => table(&rows, &[1, 3, 5, 7, 8]),
        false => table(&rows.into_iter().map(without).collect::<Vec<_>>(), &[1, 3, 5, 7]),
    };
    text + &notes(answers) + &without_answer(&found.left_out)
}

/// Returns a table of the networks without an answer, and the options that would give them one.
fn without_answer(left_out: &[LeftOut]) -> String {
    if left_out.is_empty() {
        return String::new();
    }
    let mut rows = vec![["left out", "where", "why"].map(String::from)];
    rows.extend(left_out.iter().map(|it| [it.label.clone(), format!("{}:{}", it.file, it.line), it.why.clone()]));
    let advice = if left_out.iter().any(|it| it.program.is_some()) {
        "`--cards t4,l4` asks about cards that no network names, `--all` about all\n"
    } else {
        ""
    };
    format!("\n{}{advice}", table(&rows, &[]))
}

/// Returns notes on memory that the figure of a card does not include, once for each card.
fn notes(answers: &[Answer]) -> String {
    let mut notes = String::new();
    for answer in answers {
        if let Device::Known(card) = answer.device
            && card.is_unified()
        {
            let host = bytes(card.host());
            let note = format!("{}: its memory is the host's too, which keeps {host} of it\n", card.short_name);
            if !notes.contains(&note) {
                notes += &note;
            }
        }
    }
    if notes.is_empty() { notes } else { format!("\n{notes}") }
}

fn as_json(found: &Answers, unreadable: usize) -> Value {
    let fit = |answer: &Answer| {
        let (left, over) = match answer.left() {
            Ok(left) => (left, 0),
            Err(over) => (0, over),
        };
        json!({
            "network": answer.title,
            "networks": answer.networks,
            "package": answer.package,
            "program": answer.program,
            "file": answer.file,
            "line": answer.line,
            "batch": answer.batch,
            "precision": answer.precision,
            "card": answer.device.slug(),
            "usable": answer.device.usable(),
            "headroom": answer.headroom,
            "reserve": answer.device.reserve(),
            "total": answer.total,
            "fits": answer.left().is_ok(),
            "left": left,
            "over": over,
            "max_batch": answer.largest_batch,
            "max_cache": answer.longest_cache,
        })
    };
    let left_out = |it: &LeftOut| {
        json!({
            "network": it.name,
            "package": it.package,
            "program": it.program,
            "file": it.file,
            "line": it.line,
            "why": it.why,
        })
    };
    json!({
        "version": VERSION,
        "fits": found.answers.iter().map(fit).collect::<Vec<_>>(),
        "left_out": found.left_out.iter().map(left_out).collect::<Vec<_>>(),
        "unreadable": unreadable,
    })
}

/// Returns annotations for GitHub Actions at the networks' places.
fn annotations(found: &Answers) -> String {
    let line = |answer: &Answer| {
        let (kind, verdict) = match answer.left() {
            Ok(left) => ("notice", format!("fits, {} left", bytes(left))),
            Err(over) => ("error", format!("is over by {}", bytes(over))),
        };
        let at = answer.batch.map(|batch| format!(" at batch {batch}")).unwrap_or_default();
        let largest = answer.largest_batch.map(|batch| format!("; the largest batch is {batch}")).unwrap_or_default();
        let cache = answer.longest_cache.map(|steps| format!(", the longest cache {steps} steps")).unwrap_or_default();
        let (label, card) = (&answer.label, answer.device.name());
        let (needs, has) = (bytes(answer.total), bytes(answer.device.usable()));
        let message = format!("`{label}`{at} needs {needs} and {verdict} ({card} has {has}){largest}{cache}");
        annotation(kind, (&answer.file, answer.line), &format!("{label} on {card}"), &message)
    };
    let left_out = |it: &LeftOut| {
        let title = format!("{} is left out", it.label);
        annotation("warning", (&it.file, it.line), &title, &format!("`{}` is left out: {}", it.label, it.why))
    };
    found.answers.iter().map(line).chain(found.left_out.iter().map(left_out)).collect()
}

fn annotation(kind: &str, (file, line): (&str, u64), title: &str, message: &str) -> String {
    format!("::{kind} file={},line={line},title={}::{}\n", property(file), property(title), escaped(message))
}

/// Escapes the text of an annotation.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property of an annotation.
fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    #[test]
    fn annotations_are_escaped() {
        assert_eq!(super::property("a:b,c%\n"), "a%3Ab%2Cc%25%0A");
        assert_eq!(super::escaped("a:b,c%\n"), "a:b,c%25%0A");
    }
}
