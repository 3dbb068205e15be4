//! The refusal: one text that says what a network needs, what the card has, and what would fit.
//!
//! Everything in it was computed: an alternative is printed only if a plan of it was made and fits. The search runs only when a card is too
//! small, and tries the lower bound, which is cheap, before it makes a plan.

use crate::cards::ALL;
use crate::memory::budget::{Budget, Line, MANY, Plan, PlanError, TOO_MANY};
use crate::memory::tables::Tables;
use crate::memory::target_cards::{Target, TargetCards, Targets};
use crate::message::Message;
use crate::number::{Half, Precision};
use crate::program::{NO_ROW, Part, Phase};
use crate::train::Ranks;

mod alternative;
mod largest_batch;
mod misfits;
mod several_networks;

pub use alternative::{InChunks, Leanest, Offloaded, Remedies, Remedy, Shared, Slopes, Split};
pub use several_networks::{check_together, largest, together};

use largest_batch::{Found, largest_batch, largest_planned, longest_cache, precision_fits};

/// The text of a refusal.
pub type Text = Message<4096>;

/// The most cards that are named as too small.
const MOST_CARDS: usize = 8;

/// The most cards that are named as large enough.
const MOST_FITTING: usize = 5;

/// Columns of the table: labels and right ends of values, in two columns.
const LEFT: usize = 2;
const LEFT_VALUE: usize = 25;
const RIGHT: usize = 29;
const RIGHT_VALUE: usize = 51;
/// The column at which lines below the table begin.
const DETAIL: usize = 16;

/// Returns the largest arena with `transients` tensors that is worth packing, in bytes. Packing many tensors takes seconds, and is for nothing if
/// the arena is too large for a target card: see [`plan_within`](crate::memory::budget::plan_within). `u64::MAX` if the arena is packed in any
/// case.
pub const fn limit(transients: usize, target_cards: &TargetCards<'_>) -> u64 {
    if transients <= MANY { u64::MAX } else { target_cards.room() }
}

/// Returns the largest batch that fits every card of `target_cards`, for `batch: Largest` and `max_batch!`. 0 if not even one sample fits.
///
/// Fails to compile if there is no card, unless the check is left out: then it is 1.
#[track_caller]
pub const fn largest_fitting<const N: usize>(
    tables: &Tables<'_>,
    precision: Precision,
    target_cards: &TargetCards<'_>,
) -> u64 {
    match target_cards.targets() {
        Ok(targets) if targets.room() < u64::MAX => largest_planned::<N>(tables, precision, targets.room()),
        Ok(_) if !target_cards.environment.is_unchecked() => panic!(
            "the largest batch is that of a card: name one, as `cards: [RTX_3060]`, or as `cargo check --features gpumem/rtx3060`"
        ),
        // Mistakes in variables are reported when the plan is checked.
        _ => 1,
    }
}

/// Returns the batch of `batch: Largest` that was found during lowering, for cards that leave an arena `room` bytes. The plan of this batch is
/// checked like that of any batch. If the cards leave another number of bytes, the batch is searched here: then facts that were known during
/// lowering do not hold.
#[track_caller]
pub const fn largest_found<const N: usize>(
    tables: &Tables<'_>,
    precision: Precision,
    target_cards: &TargetCards<'_>,
    [batch, room]: [u64; 2],
) -> u64 {
    match target_cards.targets() {
        Ok(targets) if targets.room() == room => batch,
        _ => largest_fitting::<N>(tables, precision, target_cards),
    }
}

/// Refuses the crate, with one panic, if `plan` does not fit every target card. See [`refusal`].
#[track_caller]
pub const fn check<const N: usize>(name: &str, tables: &Tables<'_>, plan: &Plan<N>, target_cards: &TargetCards<'_>) {
    if !target_cards.environment.is_unchecked()
        && let Some(text) = refusal(name, tables, plan, target_cards)
    {
        panic!("{}", text.as_str())
    }
}

/// Refuses the crate as [`check`] does, and prints the alternatives in `remedies`.
#[track_caller]
pub const fn check_with<const N: usize>(
    name: &str,
    tables: &Tables<'_>,
    plan: &Plan<N>,
    target_cards: &TargetCards<'_>,
    remedies: Remedies,
) {
    if !target_cards.environment.is_unchecked()
        && let Some(text) = refusal_with(name, tables, plan, target_cards, remedies)
    {
        panic!("{}", text.as_str())
    }
}

/// Returns the text that refuses network `name`; `None` if its plan fits every target card.
pub const fn refusal<const N: usize>(
    name: &str,
    tables: &Tables<'_>,
    plan: &Plan<N>,
    target_cards: &TargetCards<'_>,
) -> Option<Text> {
    refusal_with(name, tables, plan, target_cards, Remedies::UNKNOWN)
}

/// Returns the text of [`refusal`] with the alternatives in `remedies`; `None` if the plan fits every target card.
pub const fn refusal_with<const N: usize>(
    name: &str,
    tables: &Tables<'_>,
    plan: &Plan<N>,
    target_cards: &TargetCards<'_>,
    remedies: Remedies,
) -> Option<Text> {
    if let Some(error) = plan.error {
        return Some(no_plan(name, tables, plan.batch, error));
    }
    let targets = match target_cards.targets() {
        Ok(targets) => targets,
        Err(bad) => {
            let mut text = Text::new();
            bad.append(&mut text);
            return Some(text);
        }
    };
    let first = match targets.next_misfit(plan.arena(), None) {
        Some(first) => targets.get(first),
        None => return None,
    };

    let budget = plan.budget(first.reserve).with_communication(first.communication);
    let mut text = Text::new();
    append_network(&mut text, name, tables);
    append_misfits(&mut text, &targets, plan.arena(), if plan.is_packed { "needs " } else { "needs at least " });
    append_table(&mut text, tables, &budget);
    append_origins(&mut text, &targets, plan.arena());
    append_peak(&mut text, tables, &budget);
    remedies.append_leanest(&mut text, first.reserve);
    if !append_alternatives(&mut text, tables, plan, &targets, (&first, remedies)) {
        append_label(&mut text, "more");
        text.text("takes long to search here: ask `cargo gpumem fit ").text(name).text("`");
    }
    if plan.is_packed {
        append_fitting_cards(&mut text, plan.arena(), targets.headroom, targets.ranks);
    }
    Some(text)
}

const fn no_plan(name: &str, tables: &Tables<'_>, batch: u64, error: PlanError) -> Text {
    let mut text = Text::new();
    append_network(&mut text, name, tables);
    match error {
        PlanError::ZeroBatch => {
            text.text(": batch is 0: write the number of samples in a step, at least 1");
        }
        PlanError::EmptyNetwork => {
            text.text(" is empty: write at least one layer in `forward`");
        }
        PlanError::Overflow => {
            text.text(": its bytes at batch ").number(batch);
            text.text(" do not fit 63 bits: no card comes near; lower `batch` or the sizes of the layers");
        }
        PlanError::Malformed => {
            text.text(": its tables contradict each other; they are written by `network!`, so this is a bug of gpumem");
        }
    }
    text
}

const fn append_network(text: &mut Text, name: &str, tables: &Tables<'_>) {
    if !tables.training {
        text.text("inference of ");
    }
    text.text("network `").text(name).text("`");
    if !tables.step.is_empty() {
        text.text(" in its step `").text(tables.step).text("`");
    }
    if !tables.ranks.is_alone() {
        text.text(" on each of ").number(tables.ranks.count).text(" ranks");
    }
}

/// Appends what is needed on each card that is too small, and what it has, the smallest first.
const fn append_misfits(text: &mut Text, targets: &Targets<'_>, arena: u64, needs: &str) {
    let mut named = 0;
    let mut previous = None;
    while let Some(index) = targets.next_misfit(arena, previous) {
        previous = Some(index);
        named += 1;
        if named > MOST_CARDS {
            continue;
        }
        text.text(if named == 1 { " " } else { "\n  and " }).text(needs);
        targets.append_misfit(text, index, arena);
    }
    if named > MOST_CARDS {
        text.text("\n  and does not fit ").number((named - MOST_CARDS) as u64).text(" more");
    }
}

/// Appends who asked for the cards that are too small, as far as they are named.
const fn append_origins(text: &mut Text, targets: &Targets<'_>, arena: u64) {
    append_label(text, "aimed by");
    let mut named = 0;
    let mut previous = None;
    while let Some(index) = targets.next_misfit(arena, previous) {
        previous = Some(index);
        named += 1;
        if named > MOST_CARDS {
            text.text(", ...");
            return;
        }
        text.text(if named > 1 { ", " } else { "" });
        targets.get(index).append_origin(text);
    }
}

/// Appends the lines of the budget in two columns. Small lines are left out, except the four that readers look for.
const fn append_table(text: &mut Text, tables: &Tables<'_>, budget: &Budget) {
    let mut alignment = budget.get(Line::Arena);
    let mut part = 0;
    while part < Line::PARTS {
        alignment -= budget.get(Line::ALL[part]);
        part += 1;
    }
    // First the lines that readers look for, then the others.
    let lines = [
        (Line::Weights, true),
        (Line::Optimizer, tables.training),
        (Line::Gradients, tables.training),
        (Line::Activations, true),
        (Line::Master, false),
        (Line::Ema, false),
        (Line::Buffers, false),
        (Line::BatchIo, false),
        (Line::Cache, false),
        (Line::Communication, false),
        (Line::Reserve, false),
    ];
    let mut left = true;
    let mut i = 0;
    while i <= lines.len() {
        let (label, bytes, always) = if i < lines.len() {
            (lines[i].0.name(), budget.get(lines[i].0), lines[i].1)
        } else {
            ("alignment", alignment, false)
        };
        if always || (bytes > 0 && bytes >= budget.get(Line::Total) / 1000) {
            if left {
                text.text("\n").pad_to(LEFT).text(label);
                append_right_aligned(text, bytes, LEFT_VALUE);
            } else {
                text.pad_to(RIGHT).text(label);
                append_right_aligned(text, bytes, RIGHT_VALUE);
            }
            left = !left;
        }
        i += 1;
    }
}

/// Appends ` bytes` so that it ends at column `end`.
const fn append_right_aligned(text: &mut Text, bytes: u64, end: usize) {
    let mut value = Message::<32>::new();
    value.bytes(bytes);
    text.text(" ").pad_to(end.saturating_sub(value.as_str().len())).text(value.as_str());
}

/// Begins a line below the table.
const fn append_label(text: &mut Text, label: &str) {
    text.text("\n").pad_to(LEFT).text(label).pad_to(DETAIL);
}

/// Appends the operation at which most bytes are live, and the largest tensor.
pub(crate) const fn append_peak(text: &mut Text, tables: &Tables<'_>, budget: &Budget) {
    if let Some((phase, row)) = tag(tables.operation_tags, budget.peak) {
        append_label(text, "peak at");
        match path(tables, row) {
            Some(path) => text.text(Phase::describe(phase)).text(path),
            None => text.text(match phase {
                0 => "the forward pass",
                1 => "the backward pass",
                2 => "the update",
                4 => "the recomputation",
                _ => "the loss",
            }),
        };
    }
    if let Some((part, row)) = tag(tables.transient_tags, budget.largest)
        && budget.largest_bytes > 0
    {
        append_label(text, "largest");
        match path(tables, row) {
            Some(path) => text.text(path).text(Part::describe(part)),
            None if part == Part::Staging as u8 => text.text("a").text(Part::describe(part)),
            None => text.text("loss").text(Part::describe(part)),
        };
        text.text("   ").bytes(budget.largest_bytes);
    }
}

/// Returns the kind and the layer row of an entry in a table of tags. `None` if there is no such entry.
const fn tag(tags: &[u8], index: u32) -> Option<(u8, u16)> {
    let at = index as usize * 4;
    if at + 4 > tags.len() {
        return None;
    }
    Some((tags[at], u16::from_le_bytes([tags[at + 2], tags[at + 3]])))
}

const fn path<'a>(tables: &Tables<'a>, row: u16) -> Option<&'a str> {
    if row == NO_ROW { None } else { tables.paths.get(row as usize) }
}

/// Begins the line of an alternative, after `found` others.
const fn append_remedy(text: &mut Text, found: usize) {
    if found == 0 {
        append_label(text, "fits with");
    } else {
        text.text("\n").pad_to(DETAIL);
    }
}

/// Appends what fits into the cards: other programs, another precision, another batch, the cheapest first. Each was planned. If enough cheap ones
/// fit, dearer ones are left out, but the batch is always printed. Returns true if the search came to an end.
const fn append_alternatives<const N: usize>(
    text: &mut Text,
    tables: &Tables<'_>,
    plan: &Plan<N>,
    targets: &Targets<'_>,
    (first, remedies): (&Target<'_>, Remedies),
) -> bool {
    let (room, headroom) = (targets.room(), targets.headroom);
    let is_searched = N <= TOO_MANY;
    let mut found = remedies.append(text, false, room, 0);
    if is_searched {
        found = append_settings(text, tables, plan, (room, remedies.mixed), found);
    }
    found = remedies.append(text, true, room, found);
    if !is_searched {
        return false;
    }
    let search = largest_batch(tables, plan, room);
    if let Found::Fits(batch) = search {
        append_remedy(text, found);
        text.text("batch ").number(batch);
        found += 1;
    }
    let is_known = N <= MANY || found > 0 || !matches!(search, Found::Unknown);
    if found == 0 && is_known {
        append_label(text, "fits with");
        // Without any memory for a network, a smaller one does not help.
        text.text(if room > 0 { "nothing that was planned: make the network smaller, " } else { "nothing: " });
        text.text(if headroom > 0 { "leave less headroom, " } else { "" });
        text.text(if headroom > 0 || room > 0 { "or " } else { "" }).text("aim at a larger card");
    }
    append_least(text, tables, plan, search, (first, room, headroom));
    is_known
}

/// Appends what a step needs at least if no batch fits, and what takes the memory.
const fn append_least<const N: usize>(
    text: &mut Text,
    tables: &Tables<'_>,
    plan: &Plan<N>,
    search: Found,
    (first, room, headroom): (&Target<'_>, u64, u64),
) {
    if matches!(search, Found::Fits(_) | Found::Unknown) {
        return;
    }
    append_label(text, "no batch");
    if room == 0 {
        text.text("context, modules and library handles take ").bytes(first.reserve);
        if headroom > 0 {
            text.text(" and `headroom` ").bytes(headroom);
        }
        text.text(": nothing is left for a network");
        return;
    }
    match search {
        Found::OneSample(arena) => {
            text.text("one sample alone needs ").bytes(arena);
            append_beside(text, first);
        }
        _ => {
            let has_states = plan.budget.get(Line::Optimizer) > 0;
            text.text(if has_states && tables.holds_gradients {
                "weights, gradients and optimizer alone need "
            } else if has_states {
                "weights and optimizer alone need "
            } else if tables.holds_gradients {
                "weights and gradients alone need "
            } else {
                "weights alone need "
            });
            text.bytes(plan.start(Line::BatchIo));
            append_beside(text, first);
            text.text("; no batch fits");
        }
    }
}

/// Appends what a card takes besides the arena.
const fn append_beside(text: &mut Text, target: &Target<'_>) {
    text.text(" beside the reserve of ").bytes(target.reserve);
    if target.communication > 0 {
        text.text(" and ").bytes(target.communication).text(" for communication");
    }
}

/// Appends changes of the user's step that fit into `room` bytes: a shorter cache, or another precision. The precision with more digits comes
/// first. `found` were printed before; returns the new number. `mixed` are the bytes of the step in mixed precision if that is another program.
const fn append_settings<const N: usize>(
    text: &mut Text,
    tables: &Tables<'_>,
    plan: &Plan<N>,
    (room, mixed): (u64, Option<u64>),
    mut found: usize,
) -> usize {
    if let Some(steps) = longest_cache(tables, plan, room) {
        append_remedy(text, found);
        text.text("cache: ").number(steps);
        found += 1;
    }
    if found >= Remedies::MOST || !matches!(plan.precision, Precision::F32) {
        return found;
    }
    let tried = [Precision::Mixed(Half::Bf16), Precision::Bf16];
    let mut i = 0;
    while i < tried.len() {
        // Mixed precision is a way to train: inference has no master copies. If a batch is split, its step is another program.
        let fits = match mixed {
            Some(arena) if tried[i].has_master() && tables.micro_batches > 1 => arena <= room,
            _ => {
                let applies = !tried[i].has_master() || tables.training && tables.micro_batches == 1;
                applies && precision_fits::<N>(tables, plan.batch, tried[i], room)
            }
        };
        if fits {
            append_remedy(text, found);
            text.text("precision: ").text(tried[i].name());
            return found + 1;
        }
        i += 1;
    }
    found
}

/// Appends the smallest cards with enough memory for `arena`.
pub(crate) const fn append_fitting_cards(text: &mut Text, arena: u64, headroom: u64, ranks: Ranks) {
    append_label(text, "fits on");
    let mut found = 0;
    let mut i = 0;
    while i < ALL.len() && found <= MOST_FITTING {
        let card = &ALL[i];
        let beside = card.reserve().saturating_add(ranks.communication(Some(card)));
        let fits = arena.saturating_add(beside).saturating_add(headroom) <= card.usable();
        if fits && card.runs() && !card.is_slice() {
            if found > 0 {
                text.text(", ");
            }
            text.text(if found < MOST_FITTING { card.short_name } else { "..." });
            found += 1;
        }
        i += 1;
    }
    text.text(if found == 0 { "no card in the table" } else { " at this batch" });
}
