//! Reads the cards in `cards:`, `fits!` and `max_batch!`.

use crate::errors::Errors;
use crate::settings::reading::Reading;
use crate::settings::values::{last_name, plain};
use crate::syntax::Place;
use gpumem_core::cards::{self, Card};
use gpumem_core::layers::mistake::listed;
use gpumem_core::memory::target_cards::{Environment, TargetCards};
use gpumem_core::message::Message;
use gpumem_core::suggest::{beginning, nearest};
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::Expr;

/// The most cards that a message about an unknown card names.
const MOST_CARDS: usize = 16;

/// The cards whose Cargo feature is on. The crate `gpumem` turns on the same features here.
pub(crate) const SELECTED: &[Card] = gpumem_core::selected_cards!();

/// Returns the target cards of a constant.
pub(crate) fn target_cards<'a>(reading: &'a Reading<'_>, environment: Environment<'a>) -> TargetCards<'a> {
    let (headroom, ranks) = (reading.headroom.unwrap_or(0), reading.descent.ranks);
    TargetCards { selected: SELECTED, headroom, ranks, environment, ..TargetCards::at(&reading.cards) }
}

/// Calls `ask` with the environment variables that change the target cards of a constant.
pub(crate) fn with_environment<T>(reading: &Reading<'_>, ask: impl FnOnce(Environment<'_>) -> T) -> T {
    if reading.is_alone {
        return ask(Environment::NONE);
    }
    let variable = |name: &str| std::env::var(name).ok();
    let [vram, cards, headroom, unchecked] =
        ["GPUMEM_VRAM", "GPUMEM_CARDS", "GPUMEM_HEADROOM", "__GPUMEM_CHECK"].map(variable);
    ask(Environment {
        vram: vram.as_deref(),
        cards: cards.as_deref(),
        headroom: headroom.as_deref(),
        unchecked: unchecked.as_deref(),
    })
}

/// Reads `[RTX_3060, A100_80GB]`. Returns the list as Rust, and the cards.
pub(super) fn card_list(value: &Expr, errors: &mut Errors) -> (TokenStream, Vec<Card>) {
    let array = match plain(value) {
        Expr::Array(array) => Some(array),
        Expr::Reference(reference) => match plain(&reference.expr) {
            Expr::Array(array) => Some(array),
            _ => None,
        },
        _ => None,
    };
    let Some(array) = array else {
        errors.add(Place::of(value), "the cards are read by the macro as they stand; write a list, as `[RTX_3060]`");
        return (quote!(&[]), Vec::new());
    };
    let cards = named(&array.elems, errors);
    (list(&cards), cards.into_iter().map(|(_, card)| *card).collect())
}

/// Returns a list of the cards with these names, as Rust. Reports names that no card has.
pub(crate) fn cards_of<'e>(names: impl IntoIterator<Item = &'e Expr>, errors: &mut Errors) -> TokenStream {
    list(&named(names, errors))
}

fn list(cards: &[NamedCard<'_>]) -> TokenStream {
    let names = cards.iter().map(|(name, _)| name);
    quote!(&[#(__gpumem::cards::#names,)*])
}

/// A card, and its name as it is written.
type NamedCard<'e> = (&'e Ident, &'static Card);

/// Finds the cards with these names. Reports names that no card has.
fn named<'e>(names: impl IntoIterator<Item = &'e Expr>, errors: &mut Errors) -> Vec<NamedCard<'e>> {
    let known: Vec<&str> = card_names().collect();
    let mut named = Vec::new();
    for card in names {
        let Some(name) = last_name(card) else {
            errors.add(Place::of(card), "expected the name of a card, such as `RTX_3060`");
            continue;
        };
        let text = name.to_string();
        match cards::find(&text) {
            Some(found) if !found.runs() => {
                let mut why = Message::<256>::new();
                found.append_too_old(&mut why);
                errors.add(Place::of(name), why.as_str());
            }
            Some(found) if known.contains(&text.as_str()) => named.push((name, found)),
            _ => errors.add(Place::of(card), format!("no card is called `{text}`; {}", card_hint(&text))),
        }
    }
    named
}

/// Returns the constants of all cards, and their aliases.
fn card_names() -> impl Iterator<Item = &'static str> {
    cards::ALL.iter().map(|card| card.constant).chain(cards::ALIASES.iter().map(|alias| alias.constant))
}

/// Returns advice on what to write instead of `text`, which is not a card. It lists all names that begin with it, or the nearest one.
///
/// MIG slices are suggested only if `text` contains `MIG`.
fn card_hint(text: &str) -> String {
    let upper = text.to_uppercase();
    let slice_of = upper.split_once("MIG");
    let begins = |written: &str, name: &'static str| !beginning(written, [name]).is_empty();
    let found = match slice_of {
        // The name and the profile may both be shortened: `H100_MIG_1G` is any H100 with any profile of one compute slice.
        Some((card, profile)) => {
            let halves = cards::ALL.iter().filter_map(|card| Some((card.constant, card.constant.split_once("_MIG_")?)));
            let fitting = halves.filter(|(_, (of, with))| begins(card, of) && begins(profile, with));
            fitting.map(|(name, _)| name).collect()
        }
        None => beginning(text, cards::ALL.iter().filter(|card| !card.is_slice()).map(|card| card.constant)),
    };
    match found.len() {
        1 => return format!("did you mean `{}`?", found[0]),
        2..=MOST_CARDS => return format!("there are {}", listed(&found)),
        0 => {}
        count => return format!("{count} begin like that, see `gpumem::cards`"),
    }
    let known: Vec<&str> = card_names().filter(|name| slice_of.is_some() || !name.contains("_MIG_")).collect();
    match nearest(text, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "see `gpumem::cards` for their names, or give a size with `GPUMEM_VRAM=11.5GiB`".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_and_a_reference_to_it_name_equal_cards() {
        for text in ["[RTX_3060, T4]", "&[RTX_3060, T4]", "(&[gpumem::cards::RTX_3060, T4])"] {
            let mut errors = Errors::default();
            let (_, cards) = card_list(&syn::parse_str(text).unwrap(), &mut errors);
            let slugs: Vec<&str> = cards.iter().map(|card| card.slug).collect();
            assert!(errors.is_empty() && slugs == ["rtx3060", "t4"], "{text}: {slugs:?}");
        }
    }
}
