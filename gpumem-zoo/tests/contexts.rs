//! How long a context fits a card: language models of the zoo with a cache, planned as `network!` plans `INFER`.
#![allow(missing_docs)]

mod pages;

use gpumem::cards::{A100_80GB, Card, RTX_3060, RTX_4090, T4};
use gpumem::{Line, Network, Precision};
use gpumem_core::lower::{Blueprint, Cached, lower_cached, tables};
use gpumem_core::memory::budget::budget_at;
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::memory::target_cards::TargetCards;
use gpumem_zoo::gpt2::{Gpt2, Gpt2Xl};
use gpumem_zoo::llama::{Gemma2B, Llama1B, Mistral7B, Qwen500M, TinyLlama};
use std::fmt::Write as _;

/// Steps of a prompt that are read in one pass.
const CHUNK: u64 = 64;

/// Steps beyond which nobody looks.
const MOST: u64 = 1 << 20;

const CARDS: [Card; 4] = [RTX_3060, T4, RTX_4090, A100_80GB];

/// Bytes that a card needs for a cache of so many steps, where the network can have it.
fn needs(blueprint: &Blueprint, precision: Precision, steps: u64, card: &Card) -> Option<u64> {
    let cached = Cached { steps, chunk: CHUNK.min(steps) };
    let program = lower_cached(&blueprint.graph, &blueprint.outputs, cached).ok()?;
    let workspaces = Workspaces::of(&TargetCards::at(&[*card]), gpumem::Train::DEFAULT.conv_workspace);
    let tables = tables(&program);
    let budget =
        budget_at(&tables.as_tables().with_workspaces(workspaces), 1, precision).unwrap().with_reserve(card.reserve());
    let row: u64 = tables.caches.iter().map(|&[_, row, _, count]| row * count).sum();
    assert_eq!(budget[Line::Cache], row * steps * 2, "16 bits each");
    Some(budget[Line::Total])
}

/// The longest cache that fits, and whether it is the network that has no longer one.
fn longest(blueprint: &Blueprint, card: &Card) -> (u64, bool) {
    // Turing has no bf16.
    let precision = if card.compute_capability.0 < 8 { Precision::F16 } else { Precision::Bf16 };
    let fits = |steps| needs(blueprint, precision, steps, card).is_some_and(|bytes| bytes <= card.usable());
    let (mut low, mut high) = (0, MOST);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    (low, low > 0 && needs(blueprint, precision, low + 1, card).is_none())
}

fn row<N: Network>(text: &mut String) {
    let blueprint = Blueprint::decode(N::BLUEPRINT).unwrap();
    let cell = |card: &Card| match longest(&blueprint, card) {
        (0, _) => "none".into(),
        (steps, true) => format!("{steps}, all positions"),
        (steps, false) if steps + 1 >= MOST => format!("{MOST} and more"),
        (steps, false) => steps.to_string(),
    };
    let cells: Vec<String> = CARDS.iter().map(cell).collect();
    writeln!(text, "| `{}` | {} |", N::NAME, cells.join(" | ")).unwrap();
}

#[test]
fn the_longest_contexts() {
    let names: Vec<&str> = CARDS.iter().map(|card| card.name).collect();
    let mut text = format!("| network | {} |\n| --- |{}\n", names.join(" | "), " ---: |".repeat(CARDS.len()));
    row::<Gpt2<1>>(&mut text);
    row::<Gpt2Xl<1>>(&mut text);
    row::<Qwen500M<1>>(&mut text);
    row::<TinyLlama<1>>(&mut text);
    row::<Llama1B<1>>(&mut text);
    row::<Gemma2B<1>>(&mut text);
    row::<Mistral7B<1>>(&mut text);
    pages::check("README.md", "contexts", &text);
}
