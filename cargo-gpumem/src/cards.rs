//! Implements `cargo gpumem cards`, which prints the table of cards.

use crate::Failure;
use crate::options::{Cards, Plain};
use crate::output::print;
use crate::text::{bytes, table};
use gpumem_core::cards::{self, Basis, Card};
use gpumem_core::suggest::{beginning, nearest};
use serde_json::json;
use std::process::ExitCode;

pub fn run(arguments: &Cards) -> Result<ExitCode, Failure> {
    let found = found(arguments.name.as_deref());
    if found.is_empty() {
        let name = arguments.name.as_deref().unwrap_or_default();
        let slugs: Vec<&str> = cards::ALL.iter().map(|card| card.slug).collect();
        let near = nearest(name, &slugs).map_or_else(String::new, |near| format!("did you mean `{near}`? "));
        return Err(format!("no card is called `{name}`; {near}`cargo gpumem cards` lists them all").into());
    }
    match (arguments.format, found.as_slice()) {
        (Plain::Json, _) => print(&format!("{:#}\n", as_json(&found)))?,
        (Plain::Table, [card]) => print(&one(card))?,
        (Plain::Table, _) => print(&many(&found))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the card of this name, or those whose names begin with it.
fn found(name: Option<&str>) -> Vec<&'static Card> {
    let Some(name) = name else { return cards::ALL.iter().collect() };
    if let Some(card) = cards::find(name) {
        return vec![card];
    }
    beginning(name, cards::ALL.iter().map(|card| card.slug)).into_iter().filter_map(cards::find).collect()
}

fn basis(card: &Card) -> &'static str {
    match card.basis {
        Basis::Measured => "measured",
        _ => "estimated",
    }
}

/// Returns the bytes that a card has for an arena.
fn room(card: &Card) -> u64 {
    card.usable().saturating_sub(card.reserve())
}

fn host(card: &Card) -> String {
    if card.is_unified() { bytes(card.host()) } else { String::new() }
}

fn many(cards: &[&Card]) -> String {
    let heading = ["card", "name", "usable", "for a network", "the host's", "capability", "figure"];
    let rows = cards.iter().map(|card| {
        let (major, minor) = card.compute_capability;
        let capability = format!("{major}.{minor}{}", if card.runs() { "" } else { " (no backend)" });
        [
            card.slug.into(),
            card.name.into(),
            bytes(card.usable()),
            bytes(room(card)),
            host(card),
            capability,
            basis(card).into(),
        ]
    });
    table(&std::iter::once(heading.map(String::from)).chain(rows).collect::<Vec<_>>(), &[2, 3, 4])
}

fn one(card: &Card) -> String {
    let (major, minor) = card.compute_capability;
    let mut lines = vec![
        ("card", card.slug.to_string()),
        ("name", card.name.to_string()),
        ("constant", format!("gpumem::cards::{}", card.constant)),
        ("feature", format!("--features gpumem/{}", card.slug)),
        ("on the box", bytes(u64::from(card.spec_mib) << 20)),
        ("usable", format!("{} ({}: {})", bytes(card.usable()), basis(card), card.source)),
    ];
    if card.is_unified() {
        lines.push(("the host's", format!("{} of its memory stay with the host ({})", host(card), card.host_source)));
    }
    lines.push(("reserve", format!("{} for context, modules and library handles", bytes(card.reserve()))));
    lines.push(("a network", format!("{} at most", bytes(room(card)))));
    lines.push(("capability", format!("{major}.{minor}, {}", card.architecture.name())));
    if !card.runs() {
        lines.push(("backend", "CUDA 12.2 and newer do not run on this card".into()));
    }
    if let Some(bandwidth) = card.bandwidth_gbs {
        lines.push(("bandwidth", format!("{bandwidth} GB/s {}", card.memory)));
    }
    lines.push(("copies", format!("{} GB/s to the host and back, {}", card.host_gbs, card.host_link)));
    if !card.notes.is_empty() {
        lines.push(("notes", card.notes.into()));
    }
    lines.push(("not counted", "what a display, a desktop or other processes take: see `headroom`".into()));
    lines.iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect()
}

/// Returns cards, in bytes.
pub fn as_json(cards: &[&Card]) -> serde_json::Value {
    let card = |card: &&Card| {
        json!({
            "slug": card.slug,
            "name": card.name,
            "usable": card.usable(),
            "host": card.host(),
            "reserve": card.reserve(),
            "compute_capability": [card.compute_capability.0, card.compute_capability.1],
            "runs": card.runs(),
            "host_link": card.host_link,
            "host_gbs": card.host_gbs,
            "basis": basis(card),
            "source": card.source,
            "notes": card.notes,
        })
    };
    json!({ "version": 1, "cards": cards.iter().map(card).collect::<Vec<_>>() })
}
