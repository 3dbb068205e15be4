//! The target cards: those that a network is checked against, and who asked for each.
//!
//! The macro, const evaluation and the command ask here which cards these are, and how many bytes they leave an arena.

mod environment;

pub use environment::{Environment, UNCHECKED};

use crate::cards::{Card, VramError, find, parse_vram, reserve_of_size};
use crate::train::Ranks;

/// The most names or sizes in one environment variable.
pub(super) const MOST_NAMED: usize = 64;

/// The target cards of a network, as the user names them.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "Aim")]
pub struct TargetCards<'a> {
    /// The cards of `TRAIN` or `INFER`.
    pub cards: &'a [Card],
    /// The cards whose Cargo feature is on.
    pub selected: &'a [Card],
    /// Bytes of each card that stay free.
    pub headroom: u64,
    /// The ranks that share a step. Each has a card of its own, of which the communication library takes memory.
    pub ranks: Ranks,
    /// The environment variables that add cards or replace these.
    pub environment: Environment<'a>,
}

impl<'a> TargetCards<'a> {
    /// Returns these cards, without environment variables.
    pub const fn at(cards: &'a [Card]) -> TargetCards<'a> {
        TargetCards { cards, selected: &[], headroom: 0, ranks: Ranks::ALONE, environment: Environment::NONE }
    }

    /// Returns the bytes that an arena may have on all target cards. `u64::MAX` if there is none, or nothing is checked. A variable that cannot
    /// be read is refused elsewhere.
    pub const fn room(&self) -> u64 {
        match self.targets() {
            Ok(targets) if !self.environment.is_unchecked() => targets.room(),
            _ => u64::MAX,
        }
    }

    /// Returns the cards and sizes. Fails if there is a mistake in a variable or a card.
    pub(super) const fn targets(&self) -> Result<Targets<'a>, Bad<'a>> {
        let (mut cards, mut selected) = (self.cards, self.selected);
        let mut named = Named { cards: [None; MOST_NAMED], sizes: [0; MOST_NAMED], count: 0 };
        if let Some(list) = value(self.environment.cards) {
            (cards, selected) = (&[], &[]);
            let mut rest = list;
            while let Some((name, after)) = next(rest) {
                rest = after;
                let Some(card) = find(name) else {
                    return Err(Bad::Variable { variable: "GPUMEM_CARDS", value: name, fault: Fault::NoCard });
                };
                if !card.runs() {
                    return Err(Bad::Card { card, origin: Origin::Cards });
                }
                if !named.add(Some(card), 0) {
                    return Err(Bad::Variable { variable: "GPUMEM_CARDS", value: list, fault: Fault::TooMany });
                }
            }
        }
        if let Some(list) = value(self.environment.vram) {
            let mut rest = list;
            while let Some((size, after)) = next(rest) {
                rest = after;
                let bytes = match parse_vram(size) {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        return Err(Bad::Variable { variable: "GPUMEM_VRAM", value: size, fault: Fault::Size(error) });
                    }
                };
                if !named.add(None, bytes) {
                    return Err(Bad::Variable { variable: "GPUMEM_VRAM", value: list, fault: Fault::TooMany });
                }
            }
        }
        if let Some(card) = too_old(cards) {
            return Err(Bad::Card { card, origin: Origin::Written });
        }
        if let Some(card) = too_old(selected) {
            return Err(Bad::Card { card, origin: Origin::Feature });
        }
        let mut headroom = self.headroom;
        if let Some(size) = value(self.environment.headroom) {
            match parse_vram(size) {
                Ok(bytes) if bytes > headroom => headroom = bytes,
                Ok(_) | Err(VramError::Zero) => {}
                Err(error) => {
                    return Err(Bad::Variable { variable: "GPUMEM_HEADROOM", value: size, fault: Fault::Size(error) });
                }
            }
        }
        Ok(Targets { cards, selected, named, headroom, ranks: self.ranks })
    }

    /// True if one of the named cards has at least this compute capability, or none is named. A variable that cannot be read names none.
    pub(crate) const fn reaches(&self, major: u8) -> bool {
        let targets = match self.targets() {
            Ok(targets) => targets,
            Err(_) => return true,
        };
        let mut cards = 0;
        let mut i = 0;
        while i < targets.count() {
            if let Some(card) = targets.card(i) {
                cards += 1;
                if card.compute_capability.0 >= major {
                    return true;
                }
            }
            i += 1;
        }
        cards == 0
    }
}

/// Returns the first of the cards that the CUDA backend does not run on; `None` if there is none.
const fn too_old(cards: &[Card]) -> Option<&Card> {
    let mut i = 0;
    while i < cards.len() {
        if !cards[i].runs() {
            return Some(&cards[i]);
        }
        i += 1;
    }
    None
}

/// Returns a variable's value; `None` if it is unset or empty.
const fn value(variable: Option<&str>) -> Option<&str> {
    match variable {
        Some(value) if !value.trim_ascii().is_empty() => Some(value.trim_ascii()),
        _ => None,
    }
}

/// Returns the first element of a list with commas that is not empty, and what follows it. `None` if all are empty.
const fn next(list: &str) -> Option<(&str, &str)> {
    let mut list = list;
    while !list.is_empty() {
        let bytes = list.as_bytes();
        let mut end = 0;
        while end < bytes.len() && bytes[end] != b',' {
            end += 1;
        }
        let (first, rest) = list.split_at(end);
        list = if rest.is_empty() { rest } else { rest.split_at(1).1 };
        if !first.trim_ascii().is_empty() {
            return Some((first.trim_ascii(), list));
        }
    }
    None
}

/// A variable or a card that makes a check impossible.
pub(super) enum Bad<'a> {
    /// A variable that cannot be read.
    Variable { variable: &'static str, value: &'a str, fault: Fault },
    /// A card that the backend does not run on.
    Card { card: &'a Card, origin: Origin },
}

/// A mistake in an environment variable.
#[derive(Clone, Copy)]
pub(super) enum Fault {
    NoCard,
    TooMany,
    Size(VramError),
}

/// The setting that asked for a card.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// `cards:` of the network.
    Written,
    Feature,
    /// `GPUMEM_CARDS`
    Cards,
    /// `GPUMEM_VRAM`
    Vram,
}

/// A target card.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) article: &'a str,
    pub(super) name: &'a str,
    /// The name of its Cargo feature.
    pub(super) slug: &'a str,
    pub(super) usable: u64,
    /// Bytes of its memory that stay with the host.
    pub(super) host: u64,
    pub(super) reserve: u64,
    /// Bytes that the communication library takes.
    pub(super) communication: u64,
    pub(super) origin: Origin,
}

impl Target<'_> {
    pub(super) const fn fits(&self, arena: u64, headroom: u64) -> bool {
        arena.saturating_add(self.beside()).saturating_add(headroom) <= self.usable
    }

    /// Returns the bytes that a process takes besides its arena.
    pub(super) const fn beside(&self) -> u64 {
        self.reserve.saturating_add(self.communication)
    }

    /// Returns the bytes of the largest arena that fits.
    const fn room(&self, headroom: u64) -> u64 {
        self.usable.saturating_sub(headroom).saturating_sub(self.beside())
    }
}

/// The cards and sizes that variables name.
#[derive(Clone, Copy)]
struct Named {
    /// A card; `None` for a size.
    cards: [Option<&'static Card>; MOST_NAMED],
    sizes: [u64; MOST_NAMED],
    count: usize,
}

impl Named {
    /// Adds a card or a size. Returns false if there is no space for it.
    const fn add(&mut self, card: Option<&'static Card>, size: u64) -> bool {
        if self.count == MOST_NAMED {
            return false;
        }
        self.cards[self.count] = card;
        self.sizes[self.count] = size;
        self.count += 1;
        true
    }
}

/// The target cards of a network, with those that environment variables name.
pub(super) struct Targets<'a> {
    cards: &'a [Card],
    selected: &'a [Card],
    named: Named,
    /// Bytes of each card that stay free.
    pub(super) headroom: u64,
    pub(super) ranks: Ranks,
}

impl<'a> Targets<'a> {
    pub(super) const fn count(&self) -> usize {
        self.cards.len() + self.selected.len() + self.named.count
    }

    /// Returns a card of a table; `None` for a size.
    const fn card(&self, index: usize) -> Option<&'a Card> {
        if index < self.cards.len() {
            Some(&self.cards[index])
        } else if index - self.cards.len() < self.selected.len() {
            Some(&self.selected[index - self.cards.len()])
        } else {
            self.named.cards[index - self.cards.len() - self.selected.len()]
        }
    }

    pub(super) const fn get(&self, index: usize) -> Target<'a> {
        let origin = if index < self.cards.len() {
            Origin::Written
        } else if index - self.cards.len() < self.selected.len() {
            Origin::Feature
        } else {
            Origin::Cards
        };
        match self.card(index) {
            Some(card) => Target {
                article: card.article(),
                name: card.short_name,
                slug: card.slug,
                usable: card.usable(),
                host: card.host(),
                reserve: card.reserve(),
                communication: self.ranks.communication(Some(card)),
                origin,
            },
            None => {
                let usable = self.named.sizes[index - self.cards.len() - self.selected.len()];
                let reserve = reserve_of_size(usable);
                let (article, name, slug, host) = ("the", "card of GPUMEM_VRAM", "", 0);
                let communication = self.ranks.communication(None);
                Target { article, name, slug, usable, host, reserve, communication, origin: Origin::Vram }
            }
        }
    }

    /// Returns the bytes of the largest arena that fits all target cards.
    pub(super) const fn room(&self) -> u64 {
        let mut room = u64::MAX;
        let mut i = 0;
        while i < self.count() {
            let here = self.get(i).room(self.headroom);
            if here < room {
                room = here;
            }
            i += 1;
        }
        room
    }
}
