//! What a training step is aimed at, as far as it can be read before the compiler has it: const evaluation has the last word.

use super::Readings;
use super::guesses::{bytes, card_list, conv_workspace, nominal, settings_of};
use crate::selected::SELECTED;
use crate::train::literal;
use gpumem_core::Checkpoint;
use gpumem_core::cards::Card;
use gpumem_core::lower::{Blueprint, Fitted, LargestFitted, LowerError, Setting};
use gpumem_core::memory::refusal::{Aim, Environment};

/// The numbers of a training step, all of them as they will be, and bytes that its arena may have.
pub(super) struct Known {
    pub(super) setting: Setting,
    pub(super) room: u64,
}

/// Those of a network whose batch, cards, headroom and workspaces are written as they are.
pub(super) fn known(readings: &Readings<'_>) -> Option<Known> {
    let reading = readings.train()?;
    literal(&reading.batch?.value).filter(|&batch| batch > 0 && !reading.takes_largest)?;
    let (batch, precision, workspaces) = nominal(readings);
    let room = room(readings, true)?;
    Some(Known { setting: Setting::new(batch, precision, workspaces), room })
}

/// A step with `batch: Largest`, whose batch was found here.
pub(super) struct Found {
    /// The batch, and the bytes that an arena has for which it is the largest.
    pub(super) batch: u64,
    pub(super) room: u64,
    /// The step.
    pub(super) fitted: Fitted,
}

/// The step of a network with `batch: Largest` that takes what fits, whose cards, headroom and workspaces are written as they are. Const
/// evaluation would have to plan every level of it, at one batch after the other. `None` of other networks, and if not even one sample fits.
pub(super) fn largest(readings: &Readings<'_>, blueprint: &Blueprint) -> Result<Option<Found>, LowerError> {
    let takes_largest = readings.train().is_some_and(|reading| reading.takes_largest);
    if !takes_largest || !matches!(blueprint.checkpoint(), Checkpoint::Auto | Checkpoint::Budget(_)) {
        return Ok(None);
    }
    // Without a card there is no largest batch.
    let Some(room) = room(readings, false).filter(|&room| room < u64::MAX) else { return Ok(None) };
    let (batch, precision, workspaces) = nominal(readings);
    let found = blueprint.largest_fitted(&Setting::new(batch, precision, workspaces), room)?;
    Ok(found.map(|LargestFitted { batch, fitted }| Found { batch, room, fitted }))
}

/// Bytes that the arena of the training step may have, of a network whose cards, headroom and workspaces are written as they are. Whether the
/// check is left out decides where that is asked for.
fn room(readings: &Readings<'_>, may_be_unchecked: bool) -> Option<u64> {
    let settings = settings_of(readings);
    conv_workspace(settings)?;
    let cards: Vec<Card> = card_list(settings)?;
    let variable = |name: &str| std::env::var(name).ok();
    let [vram, named, headroom, unchecked] =
        ["GPUMEM_VRAM", "GPUMEM_CARDS", "GPUMEM_HEADROOM", "__GPUMEM_CHECK"].map(variable);
    let environment = Environment {
        vram: vram.as_deref(),
        cards: named.as_deref(),
        headroom: headroom.as_deref(),
        unchecked: unchecked.as_deref().filter(|_| may_be_unchecked),
    };
    let headroom = bytes(settings, "headroom", 0)?;
    Some(Aim { cards: &cards, selected: SELECTED, headroom, environment }.room())
}

#[cfg(test)]
mod tests {
    use gpumem_core::cards::RTX_3060;
    use gpumem_core::lower::tables;
    use gpumem_core::memory::budget::{Line, budget_at, lower_bound_at};
    use gpumem_core::memory::refusal::Aim;
    use gpumem_core::memory::tables::Workspaces;
    use gpumem_core::program::Program;
    use gpumem_core::{Precision, Train};
    use proc_macro2::{TokenStream, TokenTree};

    /// All tokens, those of groups after their group.
    fn flat(tokens: TokenStream) -> Vec<TokenTree> {
        let inside = |token: TokenTree| match &token {
            TokenTree::Group(group) => [vec![token.clone()], flat(group.stream())].concat(),
            _ => vec![token],
        };
        tokens.into_iter().flat_map(inside).collect()
    }

    fn expanded(checkpoint: &str, cards: &str) -> Vec<TokenTree> {
        let network = format!(
            "pub struct Net;
            const TRAIN: Train = Train {{ batch: Largest, loss: CrossEntropy, checkpoint: {checkpoint}, {cards} }};
            fn forward(image: Image<3, 64, 64>) -> Logits<10> {{
                [repeat(12, [Conv2d(64, 3, padding = 1), BatchNorm2d, Tanh]), GlobalAvgPool, Linear(10)]
            }}"
        );
        flat(crate::compile(network.parse().unwrap()))
    }

    fn place_of(tokens: &[TokenTree], name: &str) -> Option<usize> {
        tokens.iter().position(|token| token.to_string() == name)
    }

    /// The training programs that const evaluation chooses between.
    fn programs(tokens: &[TokenTree]) -> Vec<Program> {
        let is_program = |name: &str| name.starts_with("__TRAINING_") && name.ends_with("_PROGRAM");
        let statics = tokens
            .windows(2)
            .enumerate()
            .filter(|(_, pair)| pair[0].to_string() == "static" && is_program(&pair[1].to_string()));
        let literal = |(at, _): (usize, _)| {
            tokens[at..].iter().find_map(|token| match token {
                TokenTree::Literal(literal) => Some(syn::Lit::new(literal.clone())),
                _ => None,
            })
        };
        let program = |literal: syn::Lit| match literal {
            syn::Lit::ByteStr(bytes) => Program::decode(&bytes.value()),
            _ => None,
        };
        statics.filter_map(literal).filter_map(program).collect()
    }

    /// Const evaluation has two plans to make, at a batch that is written, and not one of each level at one batch after the other.
    #[test]
    fn the_largest_batch_with_recomputation_is_found_here() {
        let tokens = expanded("Auto", "cards: [RTX_3060]");
        let call = place_of(&tokens, "largest_found").expect("the batch is written");
        let numbers = tokens[call..].iter().find_map(|token| {
            let text = token.to_string();
            let inside = text.strip_prefix('[')?.strip_suffix(']')?;
            let (batch, room) = inside.split_once(',')?;
            Some([batch.trim().parse::<u64>().ok()?, room.trim().parse::<u64>().ok()?])
        });
        let [batch, room] = numbers.unwrap();
        assert_eq!(room, RTX_3060.usable() - RTX_3060.reserve());
        let programs = programs(&tokens);
        let [plain, leaner] = &programs[..] else { panic!("{} programs", programs.len()) };
        // Without the caps of workspaces a step needs more than the macro planned.
        let workspaces = Workspaces::aimed(&Aim::at(&[RTX_3060]), Train::DEFAULT.conv_workspace);
        let tables = [plain, leaner].map(|program| tables(program).leak().with_workspaces(workspaces));
        let arena = |index: usize| budget_at(&tables[index], batch, Precision::F32).unwrap()[Line::Arena];
        assert!(arena(0) > room && arena(1) <= room, "{} and {} of {room}", arena(0), arena(1));
        let more = batch + batch / 8 + 1;
        assert!(lower_bound_at(&tables[1], more, Precision::F32).unwrap() > room, "{more} fits, too");
    }

    /// Const evaluation searches the batch if the macro does not know the numbers.
    #[test]
    fn what_is_not_known_here_is_not_found_here() {
        for (checkpoint, cards) in [
            ("Auto", "cards: [RTX_3060], headroom: HEADROOM"),
            ("Auto", "cards: [RTX_3060], conv_workspace: 1 << 20"),
            ("None", "cards: [RTX_3060]"),
        ] {
            let tokens = expanded(checkpoint, cards);
            let names = ["largest_found", "largest_fitting"].map(|name| place_of(&tokens, name).is_some());
            assert_eq!(names, [false, true], "{checkpoint}, {cards}");
        }
    }
}
