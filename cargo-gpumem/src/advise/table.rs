//! Advice as text for people.

use super::Report;
use super::hints::{Hints, Size};
use crate::bars::bar;
use crate::terminal::{Colour, Terminal, paint};
use crate::text::{bytes, difference, table, time};
use gpumem_core::report::Advice;

/// Returns a row for each change, and after them the hints.
pub fn text(report: &Report, terminal: Option<Terminal>) -> String {
    let (now, card) = (&report.now, report.card);
    let has = card.usable().saturating_sub(report.headroom);
    let fits = match has.checked_sub(now.total()) {
        Some(left) => format!("fits, {} left", bytes(left)),
        None => format!("over by {}", bytes(now.total() - has)),
    };
    let mut text = format!(
        "{}, batch {}, {}, {}: {} of {}, {fits}; a step takes {} at least\n\n",
        report.step.label,
        now.batch,
        now.precision.name(),
        card.short_name,
        bytes(now.total()),
        bytes(has),
        time(now.ms + now.bus_ms),
    );
    if report.changes.is_empty() {
        text += "no change that was tried saves memory or time\n";
    } else {
        text += &changes(report, terminal);
    }
    text + &hints(&report.hints)
}

fn changes(report: &Report, terminal: Option<Terminal>) -> String {
    let now = &report.now;
    let heading = ["", "change", "memory", "needs", "time a sample", "fits", "note"].map(String::from);
    let mut rows = vec![heading];
    for (index, advice) in report.changes.iter().enumerate() {
        rows.push([
            (index + 1).to_string(),
            advice.change.clone(),
            difference(now.total(), advice.cost.total()),
            bytes(advice.cost.total()),
            added(advice.added_time(now)),
            if advice.cost.fits { "yes" } else { "no" }.into(),
            note(advice),
        ]);
    }
    let plain = table(&rows, &[0, 2, 3, 4]);
    let Some(terminal) = terminal else { return plain };
    let most = report.changes.iter().map(|advice| advice.cost.total()).fold(now.total(), u64::max);
    // Two lines of the table are its heading.
    let with_bars = plain.lines().enumerate().map(|(line, row)| {
        let Some(advice) = line.checked_sub(2).and_then(|index| report.changes.get(index)) else {
            return format!("{row}\n");
        };
        let colour = if advice.cost.fits { Colour::Green } else { Colour::Red };
        let bar = paint(&bar(advice.cost.total(), most, terminal.width - INDENT), colour);
        format!("{row}\n{:INDENT$}{bar}\n", "")
    });
    with_bars.collect()
}

/// Columns before the bar of a change.
const INDENT: usize = 4;

fn note(advice: &Advice) -> String {
    match advice.cost.bus_ms {
        0.0 => advice.note.clone(),
        bus if advice.note.is_empty() => format!("{} of the bus a step", time(bus)),
        bus => format!("{}, {} of the bus a step", advice.note, time(bus)),
    }
}

/// Returns a change of time in percent.
fn added(part: f64) -> String {
    match part * 100.0 {
        percent if percent.abs() < 0.05 => "=".into(),
        percent => format!("{percent:+.1} %"),
    }
}

fn hints(hints: &Hints) -> String {
    let mut text = String::from("\nwithout a plan:\n");
    for size in &hints.sizes {
        text += &tensor_cores(size);
    }
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let layers: Vec<String> =
        hints.layers.iter().map(|(layer, share)| format!("{layer} {}", percent(*share))).collect();
    if !layers.is_empty() {
        let of = percent(hints.memory_bound);
        text += &format!("  memory limits {of} of the least time: {}\n", layers.join(", "));
    }
    let cards: Vec<&str> = hints.cards.iter().map(|card| card.short_name).collect();
    let cards = if cards.is_empty() { "no card in the table".into() } else { cards.join(", ") };
    text + &format!("  the smallest cards that it fits as it is: {cards}\n")
}

fn tensor_cores(size: &Size) -> String {
    let Size { layer, dimension, size: now, multiple, padded: [load, tile], layers } = size;
    let more = if *layers > 1 { format!(" and {} more", layers - 1) } else { String::new() };
    let [of_load, of_tile] = size.added().map(|added| format!("+{:.2} %", 100.0 * added));
    let tile = if load == tile { String::new() } else { format!(", {tile} is whole tiles ({of_tile})") };
    format!(
        "  tensor cores: {now} {dimension} of {layer}{more} is no multiple of {multiple}; {load} is the next \
         ({of_load} products){tile}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_time_is_in_percent() {
        assert_eq!([0.0, 0.057, -0.25].map(added), ["=", "+5.7 %", "-25.0 %"]);
    }

    #[test]
    fn a_size_is_told_with_its_next_multiples() {
        let size = |now: u64, layers| Size {
            layer: "head".into(),
            dimension: "out_features",
            size: now,
            multiple: 8,
            padded: [8, 64].map(|multiple| now.next_multiple_of(multiple)),
            layers,
        };
        assert_eq!(
            tensor_cores(&size(50257, 1)),
            "  tensor cores: 50257 out_features of head is no multiple of 8; 50264 is the next (+0.01 % products), 50304 is \
             whole tiles (+0.09 %)\n"
        );
        let same = tensor_cores(&size(60, 3));
        assert!(same.ends_with("head and 2 more is no multiple of 8; 64 is the next (+6.67 % products)\n"), "{same}");
    }
}
