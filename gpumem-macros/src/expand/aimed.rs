//! What a training step is aimed at, as far as it can be read before the compiler has it: const evaluation has the last word.

use super::Readings;
use super::guesses::{bytes, card_list, conv_workspace, nominal};
use crate::selected::SELECTED;
use crate::syntax::Source;
use crate::train::literal;
use gpumem_core::cards::Card;
use gpumem_core::lower::Setting;
use gpumem_core::memory::refusal::{Aim, Environment};

/// The numbers of a training step, all of them as they will be, and bytes that its arena may have.
pub(super) struct Known {
    pub(super) setting: Setting,
    pub(super) room: u64,
}

/// Those of a network whose batch, cards, headroom and workspaces are written as they are.
pub(super) fn known(source: &Source, readings: &Readings<'_>) -> Option<Known> {
    let (settings, reading) = (source.train.as_ref(), readings.train.as_ref()?);
    literal(&reading.batch?.value).filter(|&batch| batch > 0 && !reading.takes_largest)?;
    conv_workspace(settings)?;
    let (batch, precision, workspaces) = nominal(source, readings);
    let cards: Vec<Card> = card_list(settings)?;
    let variable = |name: &str| std::env::var(name).ok();
    let [vram, named, headroom, unchecked] =
        ["GPUMEM_VRAM", "GPUMEM_CARDS", "GPUMEM_HEADROOM", "__GPUMEM_CHECK"].map(variable);
    let environment = Environment {
        vram: vram.as_deref(),
        cards: named.as_deref(),
        headroom: headroom.as_deref(),
        unchecked: unchecked.as_deref(),
    };
    let headroom = bytes(settings, "headroom", 0)?;
    let room = Aim { cards: &cards, selected: SELECTED, headroom, environment }.room();
    Some(Known { setting: Setting::new(batch, precision, workspaces), room })
}
