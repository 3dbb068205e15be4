//! Answers for models in files as tables for people.

use super::read::Missing;
use super::{AtLeast, Found, Model};
use crate::fit;
use crate::text::{bytes, count, name, table};
use gpumem_core::memory::budget::{Budget, Line};
use gpumem_import::torch::{self, Purpose};

/// The operations that are listed, the most frequent first.
const MOST_MISSING: usize = 20;

/// Returns for each model what it needs in PyTorch and in gpumem, and for all networks the cards that they fit.
///
/// A model without an answer is not listed a second time: its operations are.
pub fn text(found: &Found) -> String {
    let parts = found.models.iter().map(of_model);
    let fits = (!found.answers.answers.is_empty()).then(|| fit::table::text(&found.answers));
    parts.chain(fits).collect::<Vec<_>>().join("\n")
}

fn of_model(model: &Model) -> String {
    let Model { file, origin, batch, optimizer, precision, .. } = model;
    let optimizer = optimizer.trim_end_matches(" {}");
    let flops = model.flops_forward.map(|flops| format!(", {} GFLOPs forward", tenths(flops, 1_000_000_000)));
    let parameters = count(model.parameters);
    let mut text = format!(
        "{file}: {} ({origin}), {parameters} parameters{}; batch {batch}, {optimizer}, {precision}\n",
        model.name,
        flops.unwrap_or_default(),
    );
    text += &missing(&model.missing, model.operations);
    text += &notes(&model.notes);
    text += &needs(model);
    text += &cards(model);
    text + &at_least(model)
}

fn tenths(number: u64, unit: u64) -> String {
    let tenths = number / (unit / 10);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Lists the operations that the language does not have.
pub fn missing(all: &[Missing], operations: usize) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n", cannot_say(all, operations));
    for missing in all.iter().take(MOST_MISSING) {
        let first = if missing.first.is_empty() { String::new() } else { format!(", first in {}", missing.first) };
        text += &match &missing.operation[..] {
            "" => format!("  {}\n", missing.why),
            operation => format!("  {operation}, {}{first}: {}\n", times(missing.count), missing.why),
        };
    }
    let more = all.len().saturating_sub(MOST_MISSING);
    if more > 0 {
        text += &format!("  and {more} further kinds: the answer as JSON lists them\n");
    }
    text
}

/// Returns the beginning of the list of operations that the language does not have.
pub fn cannot_say(all: &[Missing], operations: usize) -> String {
    let count: usize = all.iter().map(|missing| missing.count).sum();
    match all.iter().all(|missing| missing.operation.is_empty()) {
        true => "the language of gpumem cannot say it:".into(),
        false => format!("the language of gpumem cannot say {count} of {operations} operations:"),
    }
}

/// Returns `once`, or the number of times.
pub fn times(count: usize) -> String {
    if count == 1 { "once".into() } else { format!("{count} times") }
}

/// Lists the operations that the network has in another way than the model.
pub fn notes(all: &[Missing]) -> String {
    let line = |note: &Missing| {
        format!("  {}, {}, first in {}: {}\n", note.operation, times(note.count), note.first, note.why)
    };
    let lines: String = all.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\nthe network differs from the model:\n{lines}") }
}

/// Returns the bytes that a step needs, in PyTorch and in gpumem.
fn needs(model: &Model) -> String {
    let line = |lines: &[Line]| {
        let sum = |budget: &Budget| bytes(lines.iter().map(|&line| budget[line]).sum());
        model.budget.as_ref().map(sum).unwrap_or_default()
    };
    let mut rows = vec![["", "PyTorch", "gpumem"].map(String::from)];
    match &model.pytorch {
        Ok(pytorch) => {
            let report = &pytorch.report;
            let of = |purposes: &[Purpose]| {
                let all = report.by_purpose.iter().filter(|(purpose, _)| purposes.contains(purpose));
                bytes(all.map(|(_, bytes)| bytes).sum())
            };
            let mut row = |what: &str, theirs: String, ours: String| rows.push([what.to_string(), theirs, ours]);
            row("parameters", of(&[Purpose::Parameter]), line(&[Line::Weights, Line::Master]));
            row("gradients", of(&[Purpose::Gradient]), line(&[Line::Gradients]));
            row("optimizer state", of(&[Purpose::OptimizerState]), line(&[Line::Optimizer, Line::Ema]));
            row("buffers", of(&[Purpose::Buffer]), line(&[Line::Buffers]));
            row("inputs and outputs", of(&[Purpose::InputOutput]), line(&[Line::BatchIo]));
            row("saved and temporary", of(&[Purpose::Saved, Purpose::Temporary]), line(&[Line::Activations]));
            row("peak of tensors", bytes(report.allocated), line(&[Line::Arena]));
            row("  held by the allocator", bytes(pytorch.reserved), line(&[Line::Arena]));
            row("  with expandable segments", bytes(pytorch.reserved_expandable), String::new());
            let at = format!("PyTorch's peak is at {}\n", report.at);
            let bounds = (!report.unknown.is_empty()).then(|| {
                let names: Vec<&str> = report.unknown.iter().map(|unknown| &unknown.operation[..]).collect();
                format!(
                    "PyTorch's figures are bounds: what {} keep is not known; at least {} are needed\n",
                    names.join(", "),
                    bytes(report.at_least)
                )
            });
            format!("\n{}{at}{}", table(&rows, &[1, 2]), bounds.unwrap_or_default())
        }
        Err(why) => {
            rows.push(["arena".into(), String::new(), line(&[Line::Arena])]);
            let table = if model.budget.is_some() { table(&rows, &[1, 2]) } else { String::new() };
            format!("\n{table}PyTorch's memory is not predicted: {why}\n")
        }
    }
}

/// Returns what the network of a model needs at least, and the cards on which it cannot run.
fn at_least(model: &Model) -> String {
    let Some(AtLeast { arena, on }) = &model.at_least else { return String::new() };
    let mut rows = vec![["gpumem on", "has", "needs", ""].map(String::from)];
    for &(device, total, is_above) in on {
        let verdict = if is_above { "no" } else { "maybe" };
        rows.push([name(device), bytes(device.usable()), format!("at least {}", bytes(total)), verdict.into()]);
    }
    let lead = format!(
        "\nthe arena of gpumem is at least {}: parameters, optimizer state, and what the layers keep that can be said\n\n",
        bytes(*arena)
    );
    lead + &table(&rows, &[1, 2])
}

/// Returns the largest batch, as far as it is searched.
fn largest(batch: u64) -> String {
    if batch < torch::MOST_SAMPLES { batch.to_string() } else { format!("{} or more", torch::MOST_SAMPLES) }
}

/// Returns the cards on which PyTorch runs the step.
fn cards(model: &Model) -> String {
    let Ok(pytorch) = &model.pytorch else { return String::new() };
    let mut rows = vec![["PyTorch on", "has", "", "largest batch"].map(String::from)];
    for on in &pytorch.on {
        let verdict = match (on.fits, on.fits_expandable) {
            (true, _) => "fits",
            (false, true) => "fits with expandable segments",
            (false, false) => "out of memory",
        };
        let largest = on.largest_batch.map_or("none".into(), largest);
        rows.push([name(on.device), bytes(on.device.usable()), verdict.into(), largest]);
    }
    format!("\n{}", table(&rows, &[1, 3]))
}
