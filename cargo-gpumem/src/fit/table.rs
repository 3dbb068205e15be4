//! Answers as a table for people.

use crate::answer::{Answer, Answers};
use crate::network::LeftOut;
use crate::plan::Alternative;
use crate::text::{bytes, name, table};
use gpumem_core::report::{Cheaper, Device};

/// Returns a row for each answer, and after them what has none.
pub fn text(found: &Answers) -> String {
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
            name(answer.device),
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

/// Returns notes: memory that the figure of a card does not include, once for each card, and changes with which a step is cheaper or fits.
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
    for answer in answers {
        if let Some(Cheaper { with, now }) = answer.cheaper {
            let (label, on, with) = (&answer.label, name(answer.device), with.text());
            let now = now.div_ceil(10);
            notes += &format!("{label} on {on}: +{now} % time by recomputation; cheaper with {}\n", with.as_str());
        }
    }
    for answer in answers {
        for Alternative { change, total } in &answer.alternatives {
            notes += &format!("{} fits on {} with {change}: {}\n", answer.label, name(answer.device), bytes(*total));
        }
    }
    if notes.is_empty() { notes } else { format!("\n{notes}") }
}
