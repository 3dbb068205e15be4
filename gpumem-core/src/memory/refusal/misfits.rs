//! The cards that do not fit a network, and mistakes in target cards, as text.

use super::Text;
use crate::memory::target_cards::{Bad, Fault, MOST_NAMED, Origin, Target, Targets};
use crate::message::same;

impl Bad<'_> {
    pub(super) const fn append(&self, text: &mut Text) {
        let (variable, value, fault) = match self {
            Bad::Variable { variable, value, fault } => (*variable, *value, *fault),
            Bad::Card { card, origin } => {
                origin.append(text, card.slug);
                text.text(": ");
                card.append_too_old(text);
                return;
            }
        };
        text.text(variable);
        match fault {
            Fault::NoCard => {
                text.text(" names `").text(value).text("`, which is no card: see `gpumem::cards` for their names, ");
                text.text("or give a size with GPUMEM_VRAM=11.5GiB")
            }
            Fault::TooMany => text.text(" names more than ").number(MOST_NAMED as u64).text(": leave some out"),
            Fault::Size(error) => text.text(" is `").text(value).text("`: ").text(error.message()),
        };
    }
}

impl Origin {
    const fn append(self, text: &mut Text, slug: &str) {
        match self {
            Origin::Written => text.text("`cards:`"),
            Origin::Feature => text.text("Cargo feature `").text(slug).text("`"),
            Origin::Cards => text.text("GPUMEM_CARDS"),
            Origin::Vram => text.text("GPUMEM_VRAM"),
        };
    }
}

impl Target<'_> {
    /// Appends who asked for the card.
    pub(super) const fn append_origin(&self, text: &mut Text) {
        self.origin.append(text, self.slug);
        if !matches!(self.origin, Origin::Vram) {
            text.text(" (").text(self.name).text(")");
        }
    }
}

impl Targets<'_> {
    /// Appends what an arena of this size needs on a card that is too small, and what that has.
    pub(super) const fn append_misfit(&self, text: &mut Text, index: usize, arena: u64) {
        let target = self.get(index);
        let total = arena.saturating_add(target.reserve);
        text.bytes(total).text(" but ").text(target.article).text(" ").text(target.name);
        text.text(" has ").bytes(target.usable);
        if target.host > 0 {
            text.text(" beside ").bytes(target.host).text(" for the host");
        }
        if self.headroom > 0 {
            text.text(" less ").bytes(self.headroom).text(" headroom");
        }
        text.text(" (over by ").bytes(total.saturating_add(self.headroom) - target.usable).text(")");
    }

    /// True if an equal card comes earlier in the list.
    const fn is_repeated(&self, index: usize) -> bool {
        let this = self.get(index);
        let mut i = 0;
        while i < index {
            let other = self.get(i);
            if same(other.name, this.name) && other.usable == this.usable {
                return true;
            }
            i += 1;
        }
        false
    }

    /// Returns the target with the least memory after `previous` that is too small for `arena`; `None` if there is none.
    pub(super) const fn next_misfit(&self, arena: u64, previous: Option<usize>) -> Option<usize> {
        let mut next: Option<usize> = None;
        let mut i = 0;
        while i < self.count() {
            let target = self.get(i);
            let after_previous = match previous {
                Some(previous) => {
                    let usable = self.get(previous).usable;
                    target.usable > usable || (target.usable == usable && i > previous)
                }
                None => true,
            };
            let before_next = match next {
                Some(next) => target.usable < self.get(next).usable,
                None => true,
            };
            if !target.fits(arena, self.headroom) && after_previous && before_next && !self.is_repeated(i) {
                next = Some(i);
            }
            i += 1;
        }
        next
    }
}
