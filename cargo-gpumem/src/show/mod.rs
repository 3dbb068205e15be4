//! Implements `cargo gpumem show`, which shows the layers and the budget of one network.

mod live;
mod picture;

use crate::Failure;
use crate::chosen::network;
use crate::network::Network;
use crate::options::{Plain, Show, Sort};
use crate::output::print;
use crate::plan::{PlannedProgram, step};
use crate::terminal::Terminal;
use crate::text::{bytes, count, percent, table};
use gpumem_core::lower::LayerLine;
use gpumem_core::memory::budget::{Budget, Line};
use gpumem_core::network::kept_bytes;
use gpumem_core::shape::Shape;
use live::{Alive, Live};
use serde_json::json;
use std::process::ExitCode;

pub fn run(arguments: &Show) -> Result<ExitCode, Failure> {
    arguments.settings.refuse_largest()?;
    let network = network(arguments.network.as_deref(), &arguments.build)?;
    print(&report(&network, arguments, Terminal::of_output())?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what is printed of a network, in a terminal or in a pipe.
pub fn report(network: &Network, arguments: &Show, terminal: Option<Terminal>) -> Result<String, Failure> {
    let (written, training) = network.program(arguments.inference)?;
    let step = step(network, written, training, &arguments.settings)?;
    let budget = step.written()?;
    let live = Live::new(&step, &budget);
    Ok(match (arguments.format, terminal) {
        (Plain::Json, _) => format!("{:#}\n", as_json(&step, &budget, &live)),
        (Plain::Table, Some(terminal)) => {
            heading(&step)
                + &layers(arguments, &step)
                + &picture::picture(arguments.top, (&step, &budget), &live, terminal)
        }
        (Plain::Table, None) => heading(&step) + &layers(arguments, &step) + &text(arguments, &budget, &live),
    })
}

fn kept(step: &PlannedProgram, layer: &LayerLine) -> u64 {
    if step.plan.training { kept_bytes(layer.kept, step.plan.samples(), step.plan.precision) } else { 0 }
}

/// Returns the layers in the order in which they are listed, each with its index in the forward pass.
fn sorted(step: &PlannedProgram, sort: Sort) -> Vec<(usize, &LayerLine)> {
    let mut layers: Vec<(usize, &LayerLine)> = step.plan.layers.iter().enumerate().collect();
    match sort {
        Sort::Order => {}
        Sort::Kept => layers.sort_by_key(|(_, layer)| std::cmp::Reverse(kept(step, layer))),
        Sort::Parameters => layers.sort_by_key(|(_, layer)| std::cmp::Reverse(layer.parameters)),
        Sort::Macs => layers.sort_by_key(|(_, layer)| std::cmp::Reverse(layer.macs)),
    }
    layers
}

/// Returns the first line: the network, and the program with its batch and precision.
fn heading(step: &PlannedProgram) -> String {
    let program = if step.plan.training { "training" } else { "inference" };
    format!("{}: {program}, batch {}, {}\n\n", step.label, step.plan.batch, step.plan.precision.name())
}

/// Returns the table of layers.
fn layers(arguments: &Show, step: &PlannedProgram) -> String {
    let mut rows = vec![["#", "layer", "kind", "output", "parameters", "MACs", "kept"].map(String::from)];
    for (index, layer) in sorted(step, arguments.sort).into_iter().take(arguments.top) {
        rows.push([
            index.to_string(),
            layer.path.clone(),
            layer.kind.clone(),
            Shape::new(&layer.output_shape).to_string(),
            count(layer.parameters),
            count(layer.macs),
            if step.plan.training { bytes(kept(step, layer)) } else { String::new() },
        ]);
    }
    let mut text = table(&rows, &[0, 4, 5, 6]);
    let more = step.plan.layers.len().saturating_sub(arguments.top);
    if more > 0 {
        text += &format!(
            "and {more} more; `--top {}` lists all, `--sort order` as they are written\n",
            step.plan.layers.len()
        );
    }
    text.push('\n');
    text
}

/// Returns the budget and the tensors at its peak as plain text.
fn text(arguments: &Show, budget: &Budget, live: &Live) -> String {
    let mut text = String::new();
    for line in budget.shown() {
        text += &format!("{:<12} {:>12}\n", line.name(), bytes(budget[line]));
    }
    text += &format!("{:<12} {:>10} %\n", "packed", percent(budget.lower_bound, budget[Line::Arena]));
    text += &format!("\nalive at the peak, {}:\n", live.peak_name);
    let row = |alive: &Alive| [alive.name.clone(), alive.shape.clone(), bytes(alive.bytes), alive.held_by.clone()];
    let heading = ["tensor", "shape", "bytes", "held by"].map(String::from);
    let rows: Vec<[String; 4]> =
        std::iter::once(heading).chain(live.at_peak.iter().take(arguments.top).map(row)).collect();
    text += &table(&rows, &[2]);
    text + &more(live, arguments.top)
}

/// Returns a line about the tensors that are not listed.
fn more(live: &Live, top: usize) -> String {
    match live.at_peak.len().saturating_sub(top) {
        0 => String::new(),
        more => format!("and {more} more\n"),
    }
}

fn as_json(step: &PlannedProgram, budget: &Budget, live: &Live) -> serde_json::Value {
    let layers = step.plan.layers.iter().enumerate().map(|(index, layer)| {
        json!({
            "index": index,
            "path": layer.path,
            "kind": layer.kind,
            "output_shape": layer.output_shape,
            "parameters": layer.parameters,
            "macs": layer.macs,
            "kept_bytes": kept(step, layer),
        })
    });
    let lines: serde_json::Map<String, serde_json::Value> =
        budget.shown().map(|line| (line.name().to_string(), budget[line].into())).collect();
    let alive = live
        .at_peak
        .iter()
        .map(|alive| json!({ "name": alive.name, "bytes": alive.bytes, "last": alive.last, "held_by": alive.held_by }));
    json!({
        "version": 1,
        "network": step.title,
        "package": step.package,
        "program": step.program_name(),
        "batch": step.plan.batch,
        "precision": step.plan.precision.name(),
        "budget": lines,
        "lower_bound": budget.lower_bound,
        "layers": layers.collect::<Vec<_>>(),
        "peak": { "operation": budget.peak, "name": live.peak_name },
        "live": live.bytes,
        "alive_at_peak": alive.collect::<Vec<_>>(),
    })
}
