//! Several networks on one card: each has an arena, and all share what the card loses to one process.

use super::{Text, append_fitting_cards, append_label, append_misfits, append_origins};
use crate::memory::target_cards::TargetCards;

/// One of several networks: its name and the bytes of its arena.
pub type NamedArena<'a> = (&'a str, u64);

/// Refuses the crate, with one panic, if these networks do not fit every card of `target_cards` at once. See [`together`].
#[track_caller]
pub const fn check_together(networks: &[NamedArena<'_>], target_cards: &TargetCards<'_>) {
    if !target_cards.environment.is_unchecked()
        && let Some(text) = together(networks, target_cards)
    {
        panic!("{}", text.as_str())
    }
}

/// Returns the largest headroom.
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

/// Returns the text that refuses these networks. `None` if their arenas fit every card of `target_cards` at once, in one process.
pub const fn together(networks: &[NamedArena<'_>], target_cards: &TargetCards<'_>) -> Option<Text> {
    let mut text = Text::new();
    let targets = match target_cards.targets() {
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
    append_misfits(&mut text, &targets, arenas, if networks.len() > 1 { "need " } else { "needs " });
    let mut i = 0;
    while i < networks.len() {
        append_label(&mut text, networks[i].0);
        text.bytes(networks[i].1);
        i += 1;
    }
    append_label(&mut text, "reserve");
    text.bytes(first.reserve);
    // Cards that are written next to the networks need no more words.
    if target_cards.cards.is_empty() {
        append_origins(&mut text, &targets, arenas);
    }
    append_fitting_cards(&mut text, arenas, targets.headroom, targets.ranks);
    Some(text)
}

/// Appends the names: ``networks `A`, `B` and `C` together``.
const fn append_networks(text: &mut Text, networks: &[NamedArena<'_>]) {
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
