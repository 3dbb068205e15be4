//! Implements `cargo gpumem advise`, which lists changes of a network that save memory or time on a card, each planned, with its price.

mod hints;
mod table;

use crate::Failure;
use crate::chosen::network;
use crate::options::{Advise, Plain};
use crate::output::print;
use crate::plan::{PlannedProgram, advice, step};
use crate::terminal::Terminal;
use gpumem_core::cards::Card;
use gpumem_core::report::{Advice, Cost, Device, Extent, NotPlanned};
use hints::Hints;
use serde_json::{Value, json};
use std::process::ExitCode;

/// The advice for one program on one card.
struct Report {
    step: PlannedProgram,
    card: &'static Card,
    headroom: u64,
    now: Cost,
    changes: Vec<Advice>,
    hints: Hints,
}

pub fn run(arguments: &Advise) -> Result<ExitCode, Failure> {
    arguments.settings.refuse_largest()?;
    let asked = arguments.card.map(known).transpose()?;
    let network = network(arguments.network.as_deref(), &arguments.build)?;
    let (written, training) = network.program(arguments.inference)?;
    let step = step(&network, written, training, &arguments.settings)?;
    let first = step.plan.cards.first().copied();
    let none = || format!("`{}` names no card: give one with `--card rtx3060`", step.label);
    let card = asked.or(first).ok_or_else(none)?;
    let headroom = arguments.headroom.unwrap_or(step.plan.headroom);
    let aim = if asked.is_some() { vec![card] } else { step.plan.cards.clone() };
    let adviser = step.plan.adviser(&aim, Some(Device::Known(card)), headroom);
    let named = |error: NotPlanned| format!("`{}`: {error}", step.label);
    let spent = adviser.spent().map_err(named)?;
    let now = adviser.now().map_err(named)?;
    let changes = advice(&adviser, &now, Extent::All);
    let hints = Hints::new(&step, &spent, card, headroom)?;
    let report = Report { step, card, headroom, now, changes, hints };
    print(&match arguments.format {
        Plain::Json => format!("{:#}\n", as_json(&report)),
        Plain::Table => table::text(&report, Terminal::of_output()),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the card of a device. A size has no rates, without which a change has no price.
fn known(device: Device) -> Result<&'static Card, Failure> {
    match device {
        Device::Known(card) => Ok(card),
        Device::Size(_) => Err("a size has no speed, which the price of a change depends on: name a card, as in \
                                `--card rtx3060`; `cargo gpumem cards` lists them"
            .into()),
    }
}

fn as_json(report: &Report) -> Value {
    let cost = |cost: &Cost| {
        json!({
            "batch": cost.batch,
            "precision": cost.precision.name(),
            "total": cost.total(),
            "fits": cost.fits,
            "ms": cost.ms,
            "bus_ms": cost.bus_ms,
            "ms_a_sample": cost.ms_a_sample(),
        })
    };
    let change = |advice: &Advice| {
        json!({
            "change": advice.change,
            "note": advice.note,
            "saved": i64::try_from(advice.saved(&report.now)).unwrap_or_default(),
            "added_time": advice.added_time(&report.now),
            "cost": cost(&advice.cost),
        })
    };
    json!({
        "version": 1,
        "network": report.step.title,
        "package": report.step.package,
        "program": report.step.program_name(),
        "card": report.card.slug,
        "usable": report.card.usable(),
        "headroom": report.headroom,
        "now": cost(&report.now),
        "changes": report.changes.iter().map(change).collect::<Vec<_>>(),
        "hints": report.hints.as_json(),
    })
}
