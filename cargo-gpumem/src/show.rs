//! Implements `cargo gpumem show`, which shows the layers and the budget of one network.

use crate::Failure;
use crate::artefacts::networks_of;
use crate::built::{ANOTHER_VERSION, Built, chosen, only, single, unread};
use crate::options::{Plain, Show, Sort};
use crate::output::{print, warn};
use crate::plan::{PlannedProgram, step};
use crate::text::{bytes, count, percent, table};
use gpumem_core::lower::LayerLine;
use gpumem_core::memory::budget::{Budget, Line};
use gpumem_core::memory::place::Placed;
use gpumem_core::network::kept_bytes;
use gpumem_core::program::{Class, Tensor};
use gpumem_core::shape::Shape;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

pub fn run(arguments: &Show) -> Result<ExitCode, Failure> {
    arguments.plan.settings.refuse_largest()?;
    let built = networks_of(&arguments.plan.build, Path::new("."), None)?;
    let unreadable = built.unreadable;
    print(&report(built, arguments)?)?;
    // Each of them was named on standard error. A network of the same name may be among them.
    if unreadable > 0 {
        warn(&format!("{}: {ANOTHER_VERSION}", unread(unreadable)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the text about the network that was asked for.
pub fn report(built: Built, arguments: &Show) -> Result<String, Failure> {
    let built = chosen(built, arguments.network.as_slice())?;
    let network = if arguments.network.is_some() { single(&built.networks)? } else { only(&built)? };
    let (written, is_training) = network.program(arguments.inference)?;
    let step = step(network, written, is_training, &arguments.plan.settings)?;
    let budget = step.written()?;
    let alive = alive(&step, budget.peak);
    Ok(match arguments.plan.format {
        Plain::Table => text(arguments, &step, &budget, &alive),
        Plain::Json => format!("{:#}\n", as_json(&step, &budget, &alive)),
    })
}

/// A tensor that is alive at the peak, with its bytes.
struct Alive<'s> {
    tensor: &'s Tensor,
    name: String,
    bytes: u64,
}

/// Returns the tensors inside the step that are live at operation `peak`, the largest first, with their bytes in the arena.
///
/// These bytes include packed bits and padding of rows.
fn alive(step: &PlannedProgram, peak: u32) -> Vec<Alive<'_>> {
    let stored = Placed::new(step.plan.program.clone(), Vec::new(), step.plan.samples(), step.plan.precision).bytes;
    let tensors = step.plan.program.tensors.iter().zip(stored);
    let at_peak = tensors.filter(|(it, _)| it.class == Class::Transient && (it.first..=it.last).contains(&peak));
    let workspaces = step.plan.sizes(&step.plan.cards).workspaces;
    let alive = at_peak.map(|(tensor, stored)| {
        let bytes = workspaces.cap(tensor.role, stored);
        Alive { tensor, name: step.plan.program.tensor_name(tensor), bytes }
    });
    let mut alive: Vec<Alive<'_>> = alive.collect();
    alive.sort_by_key(|alive| std::cmp::Reverse(alive.bytes));
    alive
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

fn text(arguments: &Show, step: &PlannedProgram, budget: &Budget, alive: &[Alive<'_>]) -> String {
    let program = if step.plan.training { "training" } else { "inference" };
    let mut text = format!("{}: {program}, batch {}, {}\n\n", step.label, step.plan.batch, step.plan.precision.name());
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
    text += &table(&rows, &[0, 4, 5, 6]);
    let more = step.plan.layers.len().saturating_sub(arguments.top);
    if more > 0 {
        text += &format!(
            "and {more} more; `--top {}` lists all, `--sort order` as they are written\n",
            step.plan.layers.len()
        );
    }
    text.push('\n');
    for line in budget.shown() {
        text += &format!("{:<12} {:>12}\n", line.name(), bytes(budget[line]));
    }
    text += &format!("{:<12} {:>10} %\n", "packed", percent(budget.lower_bound, budget[Line::Arena]));
    let operation = step.plan.program.operations.get(budget.peak as usize);
    let at = operation.map(|operation| step.plan.program.operation_name(operation)).unwrap_or_default();
    text += &format!("\nalive at the peak, {at}:\n");
    let rows: Vec<[String; 3]> = std::iter::once(["tensor", "shape", "bytes"].map(String::from))
        .chain(
            alive
                .iter()
                .take(arguments.top)
                .map(|alive| [alive.name.clone(), alive.tensor.shape.to_string(), bytes(alive.bytes)]),
        )
        .collect();
    text += &table(&rows, &[2]);
    let more = alive.len().saturating_sub(arguments.top);
    if more > 0 {
        text += &format!("and {more} more\n");
    }
    text
}

fn as_json(step: &PlannedProgram, budget: &Budget, alive: &[Alive<'_>]) -> serde_json::Value {
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
    let alive = alive.iter().map(|alive| json!({ "name": alive.name, "bytes": alive.bytes }));
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
        "alive_at_peak": alive.collect::<Vec<_>>(),
    })
}
