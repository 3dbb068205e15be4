use crate::cards::Card;
use crate::memory::Compiled;
use crate::memory::budget::{BUS_BYTES, Budget, Line};
use crate::memory::levels::Level;
use crate::memory::refusal::{Text, append_fitting_cards, append_peak};
use crate::memory::tables::{Tables, size_of};
use crate::network::Network;
use crate::number::{Precision, Role};
use crate::program::{Part, Program};
use crate::report::text::{bytes, count, percent};
use crate::report::{Arenas, Recomputation};
use crate::run::device::Device;
use crate::run::net::Net;
use crate::shape::Shape;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

impl<N: Network, D: Device> Net<N, D> {
    /// Returns a table of the network's needs: the layers, the budget, the peak and the cards. [`report::table`](table)
    /// returns it without a device.
    ///
    /// PyTorch: `torchinfo.summary(model)`.
    pub fn summary(&self) -> String {
        table::<N>()
    }
}

/// Returns a table of a network's needs: a row for each layer, the budget, the peak and the cards.
///
/// A row has the layer's output shape, its parameters, its multiply-accumulates for one sample, as far as the network's outputs need them,
/// and the bytes that are saved for its backward pass. These are of the whole batch, or of one micro-batch if the batch is split. The cards
/// are those in `cards:`, each with the bytes that are left and the largest batch that fits, and the smallest other cards that the network
/// fits on.
pub fn table<N: Network>() -> String {
    let budget = N::BUDGET;
    let doing: String = match (N::TRAINING.is_some(), N::PROGRAM.tables.step) {
        (true, "") => "training".into(),
        (true, step) => format!("training, step `{step}`"),
        (false, _) => "inference".into(),
    };
    let parts = split(N::PROGRAM.tables);
    let (batch, precision) = (super::batch::<N>(), N::PROGRAM.precision.name());
    let mut text = format!("{}: {doing}, batch {batch}{parts}, {precision}\n\n", N::NAME);
    let mut rows = Vec::from([["#", "layer", "kind", "output", "parameters", "MACs", "kept"].map(String::from)]);
    let kept = super::kept::<N>();
    for (index, (layer, &kept)) in N::LAYERS.iter().zip(&kept).enumerate() {
        rows.push([
            index.to_string(),
            layer.path.to_string(),
            layer.kind.to_string(),
            Shape::new(layer.output_shape).to_string(),
            count(layer.parameters),
            count(layer.macs),
            size(kept),
        ]);
    }
    let kept = kept.into_iter().sum();
    let (parameters, macs) = (count(super::parameters::<N>()), count(super::macs::<N>()));
    rows.push([String::new(), "total".into(), String::new(), String::new(), parameters, macs, size(kept)]);
    text += &aligned(&rows);
    text.push('\n');
    text += &needs(N::PROGRAM.tables, N::PROGRAM.precision, &budget, N::HEADROOM, N::CARDS);
    text + &recomputed(N::PROGRAM)
}

/// Returns how a batch is split, as ` over 8 ranks in 2 micro-batches`; empty if it is whole.
pub fn split(tables: &Tables<'_>) -> String {
    let of = |count: u64, before: &str, what: &str| match count {
        0 | 1 => String::new(),
        _ => format!(" {before} {count} {what}"),
    };
    of(tables.ranks.count, "over", "ranks") + &of(tables.micro_batches, "in", "micro-batches")
}

/// Returns the lines about logits in chunks and about recomputed operations; empty if there are none.
fn recomputed(compiled: &Compiled<'_>) -> String {
    let Recomputation { operations, flops, moved } = Recomputation::of(compiled);
    let Level { number, count: levels, activations_without } = compiled.level;
    let without = match levels {
        1 => String::new(),
        _ => format!("; level {number} of {}, without it {} of activations", levels - 1, bytes(activations_without)),
    };
    let program = Program::decode(compiled.program);
    let chunks = program.as_ref().map_or(1, Program::logit_chunks);
    let twice = program.is_some_and(|program| program.computes_logits_twice());
    let mut text = String::new();
    if chunks > 1 {
        let twice = if twice { ", computed twice" } else { "" };
        text += &format!("logits: in {chunks} chunks{twice}{}\n", if operations == 0 { &without } else { "" });
    }
    if operations > 0 {
        let multiplied = if flops > 0 { format!("{} FLOPs, ", count(flops)) } else { String::new() };
        text += &format!("computed again: {operations} operations, {multiplied}{} moved{without}\n", bytes(moved));
    }
    text
}

/// Returns the part of [`table`] about memory: the lines of the budget, the peak and the cards.
pub fn needs(tables: &Tables<'_>, precision: Precision, budget: &Budget, headroom: u64, cards: &[Card]) -> String {
    let mut text = String::new();
    for line in budget.shown() {
        text += &format!("{:<12} {:>12}\n", line.name(), bytes(budget[line]));
        if line == Line::Activations && budget.workspace > 0 {
            text += &format!("  of which a workspace of at most {}\n", bytes(budget.workspace));
        }
        if line == Line::Activations && tables.offloads {
            text += &format!(
                "  of which {} that pieces of optimizer state pass through\n",
                bytes(staging(tables, precision))
            );
        }
    }
    if tables.has_host() {
        text += &format!("{:<12} {:>12}\n", "host", bytes(budget.host));
        text += &format!("  {}\n", bus(budget));
    }
    text += &format!("{:<12} {:>10} %\n", "packed", percent(budget.lower_bound, budget[Line::Arena]));
    let mut peak = Text::new();
    append_peak(&mut peak, tables, budget);
    append_fitting_cards(&mut peak, budget[Line::Arena], headroom, tables.ranks);
    text += peak.as_str();
    text.push('\n');
    // One line for each card in `cards:`, with the figures of JSON's `fits` and `max_batch`.
    let mut arenas = Arenas::new(*tables, precision);
    for card in cards {
        let (room, arena) = (super::room(card, headroom, tables.ranks), budget[Line::Arena]);
        let (left, word) = if arena <= room { (room - arena, "left") } else { (arena - room, "too much") };
        let largest = arenas.largest(room);
        text += &format!("  on {}: {} {word}, largest batch {largest}\n", card.short_name, bytes(left));
    }
    text
}

/// Returns the bytes of all staging buffers, without padding.
fn staging(tables: &Tables<'_>, precision: Precision) -> u64 {
    let parts = tables.transient_tags.chunks_exact(4).zip(tables.transients.lives);
    let staged = parts.filter(|(tag, _)| tag[0] == Part::Staging as u8).filter_map(|(_, &life)| {
        let [role, fixed, ..] = *tables.transients.sizes.get(size_of(life))?;
        Some(fixed.saturating_mul(Role::from_number(role)?.bytes(precision)))
    });
    staged.fold(0, u64::saturating_add)
}

/// Returns the line about copies between host memory and the card in a step, with their least time.
fn bus(budget: &Budget) -> String {
    let mut time = Text::new();
    time.time(budget.bus_ms());
    format!(
        "each step copies {} from there and back, at least {} at {} GB/s each way",
        bytes(budget.fetched),
        time.as_str(),
        BUS_BYTES / 1_000_000_000
    )
}

/// Returns rows with left-aligned texts and right-aligned figures, and a rule below the heading and above the total.
fn aligned(rows: &[[String; 7]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 7] = core::array::from_fn(width);
    let rule = "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1));
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        if index == 1 || index + 1 == rows.len() {
            text += &rule;
            text.push('\n');
        }
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if (1..4).contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let line = cells.collect::<Vec<String>>().join("  ");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn size(value: u64) -> String {
    if value == 0 { String::new() } else { bytes(value) }
}
