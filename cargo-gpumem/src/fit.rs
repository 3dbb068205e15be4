//! `cargo gpumem fit`: networks beside cards.

use crate::Failure;
use crate::artefacts::networks_of;
use crate::network::{ANOTHER_VERSION, Network, chosen, unread};
use crate::options::{Device, Fit, Format};
use crate::plan::{Step, steps};
use crate::text::{bytes, table};
use gpumem_core::cards::{self, Card};
use gpumem_core::memory::budget::Line;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

/// The version of the JSON.
const VERSION: u64 = 1;

/// A program on a card.
struct Answer<'a> {
    step: &'a Step,
    device: Device,
    /// Bytes of the arena with the reserve.
    total: u64,
    /// Bytes that are left to others.
    headroom: u64,
    largest_batch: u64,
    /// Of a network that keeps a cache.
    longest_cache: Option<u64>,
}

impl Answer<'_> {
    /// Bytes that stay free; how many are missing.
    fn left(&self) -> Result<u64, u64> {
        let (needs, has) = (self.total.saturating_add(self.headroom), self.device.usable());
        has.checked_sub(needs).ok_or(needs - has.min(needs))
    }
}

pub fn run(arguments: &Fit) -> Result<ExitCode, Failure> {
    let built = networks_of(&arguments.build, Path::new("."), None)?;
    let unreadable = built.unreadable;
    let networks = chosen(built, &arguments.networks)?;
    let programs = programs(&networks, arguments)?;
    let answers = answers(&programs, arguments)?;
    match arguments.format {
        Format::Table => print!("{}", text(&answers)),
        Format::Json => println!("{:#}", as_json(&answers)),
        Format::Github => print!("{}", annotations(&answers)),
    }
    // The networks of these were not answered for.
    if unreadable > 0 {
        return Err(format!("{}: {ANOTHER_VERSION}", unread(unreadable)).into());
    }
    let refused = answers.iter().any(|answer| answer.left().is_err());
    Ok(ExitCode::from(u8::from(refused && !arguments.all)))
}

/// The programs of each network by its name.
fn programs(networks: &[Network], arguments: &Fit) -> Result<Vec<(String, Vec<Step>)>, Failure> {
    let mut all = Vec::new();
    for network in networks {
        match steps(network, &arguments.settings) {
            Ok(steps) => all.push((network.name.clone(), steps)),
            // Its instances speak for it.
            Err(_) if arguments.networks.is_empty() && has_instance(networks, network) => {}
            // One that was not named is not in the way of the others.
            Err(failure) if arguments.networks.is_empty() => eprintln!("warning: skipped: {failure}"),
            Err(failure) => return Err(failure),
        }
    }
    Ok(all)
}

/// The programs beside the cards that were asked about, or those that are written. A network that was named has an answer.
fn answers<'s>(programs: &'s [(String, Vec<Step>)], arguments: &Fit) -> Result<Vec<Answer<'s>>, Failure> {
    let mut answers = Vec::new();
    let asked = asked(arguments);
    for (name, steps) in programs {
        let before = answers.len();
        for step in steps {
            // The compiler plans for all cards that are written, and for each that it is asked about, alone.
            let written = step.cards.iter().map(|card| (Device::Known(card), step.cards.clone()));
            let alone = asked.iter().flatten().map(|device| (*device, device.aim()));
            let devices: Vec<_> = if asked.is_some() { alone.collect() } else { written.collect() };
            for (device, aim) in devices {
                answers.push(answer(step, device, &aim, arguments.headroom)?);
            }
        }
        if answers.len() == before && !arguments.networks.is_empty() {
            return Err(format!("`{name}` names no card: give some with `--cards t4,l4`, or all with `--all`").into());
        }
    }
    if answers.is_empty() {
        return Err("no card is named: give some with `--cards t4,l4`, or all with `--all`".into());
    }
    Ok(answers)
}

/// Whether an instance of a network that is generic over its batch was built.
fn has_instance(networks: &[Network], generic: &Network) -> bool {
    let is_instance =
        |other: &&Network| other.name.strip_prefix(&generic.name).is_some_and(|rest| rest.starts_with('<'));
    networks.iter().filter(is_instance).any(|other| other.declared == generic.declared)
}

/// The cards that were asked about instead of those that are written.
fn asked(arguments: &Fit) -> Option<Vec<Device>> {
    if arguments.all {
        return Some(cards::ALL.iter().filter(|card| card.runs()).map(Device::Known).collect());
    }
    (!arguments.cards.is_empty()).then(|| arguments.cards.clone())
}

fn answer<'s>(
    step: &'s Step,
    device: Device,
    aim: &[&'static Card],
    headroom: Option<u64>,
) -> Result<Answer<'s>, Failure> {
    let headroom = headroom.unwrap_or(step.headroom);
    let (budget, largest_batch) = step.within(aim, device, headroom)?;
    let total = budget.with_reserve(device.reserve())[Line::Total];
    let longest_cache = step.longest_cache(aim, device.room(headroom));
    Ok(Answer { step, device, total, headroom, largest_batch, longest_cache })
}

fn text(answers: &[Answer<'_>]) -> String {
    let heading = ["network", "batch", "precision", "needs", "card", "has", "", "largest batch", "longest cache"];
    let mut rows = vec![heading.map(String::from)];
    for answer in answers {
        let Answer { step, device, total, headroom, largest_batch, longest_cache } = answer;
        let verdict = match answer.left() {
            Ok(left) => format!("fits, {} left", bytes(left)),
            Err(over) => format!("over by {}", bytes(over)),
        };
        let has = match headroom {
            0 => bytes(device.usable()),
            headroom => format!("{} less {}", bytes(device.usable()), bytes(*headroom)),
        };
        let most = |number: u64| if number == 0 { "none".into() } else { number.to_string() };
        let precision = step.precision.name().to_string();
        rows.push([
            step.title.clone(),
            step.batch.to_string(),
            precision,
            bytes(*total),
            device.name(),
            has,
            verdict,
            most(*largest_batch),
            longest_cache.map(most).unwrap_or_default(),
        ]);
    }
    let notes = notes(answers);
    // Few networks keep a cache.
    let has_cache = answers.iter().any(|answer| answer.longest_cache.is_some());
    let without = |[row @ .., _]: [String; 9]| -> [String; 8] { row };
    let text = match has_cache {
        true => table(&rows, &[1, 3, 5, 7, 8]),
        false => table(&rows.into_iter().map(without).collect::<Vec<_>>(), &[1, 3, 5, 7]),
    };
    text + &notes
}

/// What a card's figure leaves out, once for each card.
fn notes(answers: &[Answer<'_>]) -> String {
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

fn as_json(answers: &[Answer<'_>]) -> Value {
    let fit = |answer: &Answer<'_>| {
        let Answer { step, device, total, headroom, largest_batch, longest_cache } = answer;
        let (left, over) = match answer.left() {
            Ok(left) => (left, 0),
            Err(over) => (0, over),
        };
        json!({
            "network": step.title,
            "program": if step.training { "train" } else { "infer" },
            "file": step.file,
            "line": step.line,
            "batch": step.batch,
            "precision": step.precision.name(),
            "card": device.slug(),
            "usable": device.usable(),
            "headroom": headroom,
            "reserve": device.reserve(),
            "total": total,
            "fits": answer.left().is_ok(),
            "left": left,
            "over": over,
            "max_batch": largest_batch,
            "max_cache": longest_cache,
        })
    };
    json!({ "version": VERSION, "fits": answers.iter().map(fit).collect::<Vec<_>>() })
}

/// Annotations of GitHub Actions at the networks' places.
fn annotations(answers: &[Answer<'_>]) -> String {
    let line = |answer: &Answer<'_>| {
        let Answer { step, device, total, largest_batch, longest_cache, .. } = answer;
        let cache = longest_cache.map(|steps| format!(", the longest cache {steps} steps")).unwrap_or_default();
        let (kind, verdict) = match answer.left() {
            Ok(left) => ("notice", format!("fits, {} left", bytes(left))),
            Err(over) => ("error", format!("is over by {}", bytes(over))),
        };
        let message = format!(
            "`{}` at batch {} needs {} and {verdict} ({} has {}); the largest batch is {largest_batch}{cache}",
            step.title,
            step.batch,
            bytes(*total),
            device.name(),
            bytes(device.usable()),
        );
        let Step { file, line, title, .. } = step;
        let title = format!("{title} on {}", device.name());
        format!("::{kind} file={},line={line},title={}::{}\n", property(file), property(&title), escaped(&message))
    };
    answers.iter().map(line).collect()
}

/// Text of an annotation.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of an annotation.
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
