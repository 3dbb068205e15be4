//! Cards and processes as text and as JSON.

use super::Watched;
use super::process::{Log, Planned, Program};
use crate::text::{bytes, difference, table};
use serde_json::{Value, json};

/// Returns a line for each card, and below it one for each process.
pub fn text(watched: &[Watched]) -> String {
    if watched.is_empty() {
        return "the driver knows no card\n".into();
    }
    let mut text = String::new();
    for Watched { card, programs } in watched {
        let figures = [
            Some(format!("{} of {}", bytes(card.used), bytes(card.total))),
            card.utilisation.map(|percent| format!("{percent} %")),
            card.watts.map(|watts| watts_text(watts, card.most_watts)),
            card.celsius.map(|degrees| format!("{degrees} C")),
        ];
        let figures: Vec<String> = figures.into_iter().flatten().collect();
        text += &format!("{} {}: {}\n", card.index, card.name, figures.join(", "));
        if !programs.is_empty() {
            text += &processes(programs);
        }
        text.push('\n');
    }
    text
}

pub fn watts_text(watts: f64, most: Option<f64>) -> String {
    most.map_or_else(|| format!("{watts:.0} W"), |most| format!("{watts:.0} of {most:.0} W"))
}

/// Returns the table of processes. A process with several programs has a row for each.
fn processes(programs: &[Program]) -> String {
    let mut rows =
        vec![["pid", "process", "measured", "network", "budget", "difference", "training"].map(String::from)];
    for program in programs {
        let used = program.process.used;
        let mut first =
            [program.process.pid.to_string(), name(program).into(), used.map_or_else(|| "unknown".into(), bytes)];
        let training = program.log.as_ref().map(|log| log_text(log, program.planned.first())).unwrap_or_default();
        if program.planned.is_empty() {
            let [pid, name, used] = first;
            rows.push([pid, name, used, "not gpumem".into(), String::new(), String::new(), training]);
            continue;
        }
        for planned in &program.planned {
            let [pid, name, measured] = std::mem::take(&mut first);
            let training = if pid.is_empty() { String::new() } else { training.clone() };
            let differs = used.map(|used| difference(planned.total, used)).unwrap_or_default();
            rows.push([pid, name, measured, network(planned), bytes(planned.total), differs, training]);
        }
    }
    table(&rows, &[0, 2, 4, 5])
}

/// Returns the name of a process.
pub fn name(program: &Program) -> &str {
    program.name.as_deref().unwrap_or("?")
}

/// Returns a network with its program, batch and precision.
pub fn network(planned: &Planned) -> String {
    format!("{}, {}, batch {}, {}", planned.label, planned.program, planned.batch, planned.precision)
}

/// Returns the newest figures of a training.
pub fn log_text(log: &Log, planned: Option<&Planned>) -> String {
    let loss = log.losses.last().map(|loss| format!(", loss {loss:.4}")).unwrap_or_default();
    let rate = match (log.steps_a_second, planned) {
        (Some(rate), Some(planned)) => format!(", {:.1} samples/s", rate * planned.batch as f64),
        (Some(rate), None) => format!(", {rate:.2} steps/s"),
        (None, _) => String::new(),
    };
    format!("step {}{loss}{rate}", log.step)
}

pub fn as_json(watched: &[Watched]) -> Value {
    let planned = |planned: &Planned, used: Option<u64>| {
        let lines = planned.lines.iter().map(|(name, bytes)| (name.to_string(), (*bytes).into()));
        json!({
            "network": planned.label,
            "program": planned.program,
            "batch": planned.batch,
            "precision": planned.precision,
            "budget": lines.collect::<serde_json::Map<String, Value>>(),
            "total": planned.total,
            "difference": used.and_then(|used| i64::try_from(i128::from(used) - i128::from(planned.total)).ok()),
        })
    };
    let log = |log: &Log| json!({ "path": log.path, "step": log.step, "loss": log.losses.last(), "steps_a_second": log.steps_a_second });
    let program = |program: &Program| {
        let used = program.process.used;
        json!({
            "pid": program.process.pid,
            "name": program.name,
            "used": used,
            "programs": program.planned.iter().map(|it| planned(it, used)).collect::<Vec<_>>(),
            "log": program.log.as_ref().map(log),
        })
    };
    let card = |Watched { card, programs }: &Watched| {
        json!({
            "index": card.index,
            "name": card.name,
            "uuid": card.uuid,
            "total": card.total,
            "used": card.used,
            "utilisation": card.utilisation,
            "watts": card.watts,
            "most_watts": card.most_watts,
            "celsius": card.celsius,
            "processes": programs.iter().map(program).collect::<Vec<_>>(),
        })
    };
    json!({ "version": 1, "cards": watched.iter().map(card).collect::<Vec<_>>() })
}
