//! Answers as a Markdown matrix, for summaries of jobs and for comments: a row for each program, a column for each card.

use crate::answer::{Answer, Answers};
use crate::text::{bytes, name};

/// Returns the matrix, and after it a list of what has no answer.
pub fn matrix(found: &Answers) -> String {
    let mut cards: Vec<String> = Vec::new();
    let mut rows: Vec<(Row<'_>, Vec<&Answer>)> = Vec::new();
    for answer in &found.answers {
        let card = name(answer.device);
        if !cards.contains(&card) {
            cards.push(card);
        }
        let row = Row::of(answer);
        match rows.iter_mut().find(|(other, _)| *other == row) {
            Some((_, answers)) => answers.push(answer),
            None => rows.push((row, vec![answer])),
        }
    }
    let mut text = String::new();
    if !rows.is_empty() {
        let names = cards.iter().map(|card| format!(" {} |", escaped(card)));
        text += &format!("| network | batch | precision |{}\n", names.collect::<String>());
        text += &format!("| --- | ---: | --- |{}\n", " --- |".repeat(cards.len()));
    }
    for (row, answers) in rows {
        let cells = cards.iter().map(|card| {
            let answer = answers.iter().find(|answer| name(answer.device) == *card);
            answer.map_or_else(|| "  |".into(), |answer| format!(" {} |", cell(answer)))
        });
        text += &format!("{}{}\n", row.text(), cells.collect::<String>());
    }
    if !found.left_out.is_empty() {
        text += "\nWithout an answer:\n\n";
    }
    for it in &found.left_out {
        text += &format!("* `{}` at `{}:{}`: {}\n", it.label, it.file, it.line, it.why);
    }
    text
}

/// The cells of a program that do not depend on a card.
#[derive(PartialEq)]
struct Row<'a> {
    label: &'a str,
    batch: Option<u64>,
    precision: &'a str,
    place: (&'a str, u64),
}

impl Row<'_> {
    fn of(answer: &Answer) -> Row<'_> {
        let place = (&*answer.file, answer.line);
        Row { label: &answer.label, batch: answer.batch, precision: answer.precision.unwrap_or_default(), place }
    }

    fn text(&self) -> String {
        let batch = self.batch.map(|batch| batch.to_string()).unwrap_or_default();
        format!("| {} | {batch} | {} |", escaped(self.label), self.precision)
    }
}

/// Returns the answer for one card. What does not fit stands out in bold.
fn cell(answer: &Answer) -> String {
    let verdict = match answer.left() {
        Ok(left) => format!("fits, {} left", bytes(left)),
        Err(over) => format!("**over by {}**", bytes(over)),
    };
    let largest = match answer.largest_batch {
        Some(0) => ", no batch fits".into(),
        Some(batch) if answer.batch != Some(batch) => format!(", largest batch {batch}"),
        _ => String::new(),
    };
    format!("{verdict} of {}{largest}", bytes(answer.device.usable()))
}

/// Escapes a name in a cell. Names are those of Rust, with `<`, `>` and `_`.
fn escaped(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}
