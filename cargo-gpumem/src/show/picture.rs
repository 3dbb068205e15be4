//! Draws a budget and its peak in a terminal.

use super::live::Live;
use super::more;
use crate::bars::{bar, columns, height};
use crate::plan::PlannedProgram;
use crate::terminal::{Colour, Terminal, paint, shortened};
use crate::text::{bytes, name, percent};
use gpumem_core::memory::budget::{Budget, Line};
use gpumem_core::program::Phase;
use gpumem_core::report::Device;

/// Columns before a bar: the name of a line and its bytes.
const BEFORE: usize = 26;

/// Returns the budget with bars, the curve of live bytes, and the `top` largest tensors at the peak.
pub fn picture(top: usize, (step, budget): (&PlannedProgram, &Budget), live: &Live, terminal: Terminal) -> String {
    lines(budget, terminal)
        + &cards(step, budget, terminal)
        + &curve(budget, live, terminal)
        + &at_peak(top, live, terminal)
}

/// Returns a line with a bar for each part of the budget. Bars are shares of the largest part.
fn lines(budget: &Budget, terminal: Terminal) -> String {
    let is_part = |line: Line| line < Line::Arena;
    let most = budget.shown().filter(|&line| is_part(line)).map(|line| budget[line]).max().unwrap_or(0);
    let mut text = String::new();
    for line in budget.shown() {
        let of = budget[line];
        let bar = match line {
            Line::Arena => format!("packed {} %", percent(budget.lower_bound, of)),
            _ if is_part(line) => paint(&bar(of, most, terminal.width - BEFORE), colour(line)),
            _ => String::new(),
        };
        text += format!("{:<13} {:>11} {bar}", line.name(), bytes(of)).trim_end();
        text.push('\n');
    }
    text
}

fn colour(line: Line) -> Colour {
    match line {
        Line::Weights | Line::Master => Colour::Blue,
        Line::Gradients | Line::Optimizer | Line::Ema => Colour::Magenta,
        Line::Activations => Colour::Green,
        _ => Colour::Cyan,
    }
}

/// Returns a line for each card of the network: the bytes that are needed of those that it has.
fn cards(step: &PlannedProgram, budget: &Budget, terminal: Terminal) -> String {
    let mut text = String::new();
    for card in &step.plan.cards {
        let device = Device::Known(card);
        let (total, has) = (step.total(*budget, device), device.usable().saturating_sub(step.plan.headroom));
        let (verdict, colour) = match has.checked_sub(total) {
            Some(left) => (format!("fits, {} left", bytes(left)), Colour::Green),
            None => (format!("over by {}", bytes(total - has)), Colour::Red),
        };
        let verdict = format!("{} of {}, {verdict}", bytes(total), bytes(has));
        let width = terminal.width.saturating_sub(BEFORE + verdict.chars().count() + 1).max(4);
        let bar = bar(total, has, width);
        let gap = " ".repeat(width - bar.chars().count());
        text += &format!("{:<25} {}{gap} {verdict}\n", name(device), paint(&bar, colour));
    }
    text
}

/// Returns the curve of live bytes over operations, with a mark at the peak above it and the parts of the step below it.
fn curve(budget: &Budget, live: &Live, terminal: Terminal) -> String {
    let most = live.bytes.iter().copied().max().unwrap_or(0);
    let peak = budget.peak as usize;
    let columns = columns(live.bytes.len(), terminal.width);
    let Some(at) = columns.iter().position(|&(first, end)| (first..end).contains(&peak)) else { return String::new() };
    let mark = format!("peak {} at {peak}", bytes(most));
    let title = format!("live bytes over {} operations", live.bytes.len());
    // The text is on the side of the mark that has room for it.
    let above = match at + mark.chars().count() + 2 <= terminal.width {
        true => format!("{}\u{25bc} {mark}", " ".repeat(at)),
        false => format!("{:>1$} \u{25bc}", mark, at.saturating_sub(1)),
    };
    let shape = |&(first, end): &(usize, usize)| {
        let value = live.bytes[first..end].iter().copied().max().unwrap_or(0);
        let is_again = live.phases[first..end].contains(&Phase::Again);
        (height(value, most), if is_again { Colour::Yellow } else { part(live, first).1 })
    };
    let drawn: Vec<(char, Colour)> = columns.iter().map(shape).collect();
    let runs = drawn.chunk_by(|a, b| a.1 == b.1);
    let drawn: String = runs.map(|run| paint(&run.iter().map(|it| it.0).collect::<String>(), run[0].1)).collect();
    let again = live.phases.contains(&Phase::Again);
    let again = if again {
        format!(", {} where something is recomputed", paint("yellow", Colour::Yellow))
    } else {
        String::new()
    };
    format!("\n{}{again}\n{above}\n{drawn}\n{}\n", paint(&title, Colour::Bold), ribbon(live, &columns))
}

/// Returns the part of the step that an operation is in, with its colour. Updates that run inside the backward pass belong to it.
fn part(live: &Live, operation: usize) -> (&'static str, Colour) {
    let is_backward = |phase: &Phase| matches!(phase, Phase::Loss | Phase::Backward | Phase::Again);
    let first = live.phases.iter().position(is_backward).unwrap_or(live.phases.len());
    let last = live.phases.iter().rposition(is_backward).unwrap_or(0);
    match operation {
        _ if operation < first => ("forward", Colour::Cyan),
        _ if operation <= last => ("backward", Colour::Green),
        _ => ("update", Colour::Magenta),
    }
}

/// Returns the names of the parts of the step below their columns. A part that is too narrow for its name has only its mark.
fn ribbon(live: &Live, columns: &[(usize, usize)]) -> String {
    let parts: Vec<&str> = columns.iter().map(|&(first, _)| part(live, first).0).collect();
    let named = parts.chunk_by(|a, b| a == b).map(|run| {
        let text: String = format!("|{}", run[0]).chars().take(run.len()).collect();
        let text = if text.chars().count() > run[0].chars().count() { text } else { "|".into() };
        format!("{text:<0$}", run.len())
    });
    named.collect::<String>().trim_end().to_string()
}

/// Returns the largest tensors at the peak, with bars and the last operation that needs each.
fn at_peak(top: usize, live: &Live, terminal: Terminal) -> String {
    let most = live.at_peak.first().map_or(0, |alive| alive.bytes);
    let (names, bars) = (terminal.width * 2 / 5, terminal.width / 8);
    let holders = terminal.width.saturating_sub(names + bars + 14);
    let heading = format!("alive at the peak, {}", live.peak_name);
    let heading = format!("{:<1$}", shortened(&heading, names + bars + 13), names + bars + 13);
    let mut text = format!("\n{} held by\n", paint(&heading, Colour::Bold));
    for alive in live.at_peak.iter().take(top) {
        let name = shortened(&alive.name, names);
        let bar = bar(alive.bytes, most, bars);
        let gap = " ".repeat(bars - bar.chars().count());
        let holder = shortened(&alive.held_by, holders);
        text += &format!("{name:<names$} {:>11} {}{gap} {holder}\n", bytes(alive.bytes), paint(&bar, Colour::Green));
    }
    text + &more(live, top)
}
