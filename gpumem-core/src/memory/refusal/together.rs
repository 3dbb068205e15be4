//! Several networks on one card: each has an arena, and all share what the card loses to one process.

use super::target::Targets;
use super::{Aim, MOST_CARDS, Text, UNCHECKED, append_fitting_cards, append_label, append_origins};
use crate::message::same;

/// A network beside others: its name and the bytes of its arena.
pub type Part<'a> = (&'a str, u64);

/// Refuses the crate, with one panic, if the arenas of these networks do not fit every card of `aim` at once. See [`together`].
#[track_caller]
pub const fn check_together(networks: &[Part<'_>], aim: &Aim<'_>) {
    if let Some(tool) = aim.environment.unchecked
        && same(tool, UNCHECKED)
    {
        return;
    }
    if let Some(text) = together(networks, aim) {
        panic!("{}", text.as_str())
    }
}

/// The largest headroom.
pub const fn largest(headrooms: &[u64]) -> u64 {
    let (mut largest, mut i) = (0, 0);
    while i < headrooms.len() {
        if headrooms[i] > largest {
            largest = headrooms[i];
        }
        i += 1;
    }
    largest
}

/// The text that refuses these networks, or `None` if their arenas fit every card of `aim` at once, in one process.
pub const fn together(networks: &[Part<'_>], aim: &Aim<'_>) -> Option<Text> {
    let mut text = Text::new();
    let targets = match aim.targets() {
        Ok(targets) => targets,
        Err(bad) => {
            bad.append(&mut text);
            return Some(text);
        }
    };
    let mut arenas = 0u64;
    let mut i = 0;
    while i < networks.len() {
        arenas = arenas.saturating_add(networks[i].1);
        i += 1;
    }
    let first = match targets.next_misfit(arenas, None) {
        Some(first) => targets.get(first),
        None => return None,
    };
    append_networks(&mut text, networks);
    append_needs(&mut text, &targets, arenas, networks.len() > 1);
    let mut i = 0;
    while i < networks.len() {
        append_label(&mut text, networks[i].0);
        text.bytes(networks[i].1);
        i += 1;
    }
    append_label(&mut text, "reserve");
    text.bytes(first.reserve);
    // Cards that stand beside the networks need no more words.
    if aim.cards.is_empty() {
        append_origins(&mut text, &targets, arenas);
    }
    append_fitting_cards(&mut text, arenas, targets.headroom);
    Some(text)
}

/// ``networks `A`, `B` and `C` together``
const fn append_networks(text: &mut Text, networks: &[Part<'_>]) {
    text.text(if networks.len() > 1 { "networks " } else { "network " });
    let mut i = 0;
    while i < networks.len() {
        if i > 0 {
            text.text(if i + 1 == networks.len() { " and " } else { ", " });
        }
        text.text("`").text(networks[i].0).text("`");
        i += 1;
    }
    text.text(if networks.len() > 1 { " together" } else { "" });
}

/// Each card that is too small with its figures, the smallest first.
const fn append_needs(text: &mut Text, targets: &Targets<'_>, arenas: u64, several: bool) {
    let mut named = 0;
    let mut previous = None;
    while let Some(index) = targets.next_misfit(arenas, previous) {
        previous = Some(index);
        named += 1;
        if named <= MOST_CARDS {
            let verb = if several { "need " } else { "needs " };
            text.text(if named == 1 { " " } else { "\n  and " }).text(verb);
            targets.append_misfit(text, index, arenas);
        }
    }
    if named > MOST_CARDS {
        text.text("\n  and fit not ").number((named - MOST_CARDS) as u64).text(" more");
    }
}
