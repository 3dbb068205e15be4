//! The cards and the available bytes of a training step, if the macro can read them. Const evaluation decides.

use super::Readings;
use super::assumed_sizes::nominal;
use crate::settings::cards::{target_cards, with_environment};
use crate::settings::reading::Reading;
use gpumem_core::lower::{Blueprint, Fitted, LargestFitted, LowerError, Sizes};
use gpumem_core::memory::target_cards::Environment;

/// The sizes of a training step, all of them final, and the bytes that its arena may have.
pub(super) struct Known {
    pub(super) setting: Sizes,
    pub(super) room: u64,
}

/// Returns the sizes of a network whose batch, headroom and scratch limits are literals. `None` for other networks.
pub(super) fn known(readings: &Readings<'_>) -> Option<Known> {
    let reading = readings.train()?;
    reading.known_batch.filter(|&batch| batch > 0)?;
    Some(Known { setting: nominal(readings), room: room(reading, true)? })
}

/// A training step with `batch: Largest` whose batch the macro has found.
pub(super) struct Found {
    /// The batch, and the arena bytes for which it is the largest.
    pub(super) batch: u64,
    pub(super) room: u64,
    /// The programs of the step at that batch.
    pub(super) fitted: Fitted,
}

/// Finds the largest batch for a network with `batch: Largest` whose headroom and scratch limits are literals.
///
/// Without this, const evaluation would have to plan every recompute level at one batch after the other. `None` for other networks, and if not even
/// one sample fits.
pub(super) fn largest(readings: &Readings<'_>, blueprint: &Blueprint) -> Result<Option<Found>, LowerError> {
    let Some(reading) = readings.train() else { return Ok(None) };
    let Some(room) = room_of_largest(reading) else { return Ok(None) };
    let found = blueprint.largest_fitted(&nominal(readings), room)?;
    Ok(found.map(|LargestFitted { batch, fitted }| Found { batch, room, fitted }))
}

/// Returns the bytes for which the macro finds the batch of a step with `batch: Largest`.
///
/// `None` for other steps, and if no card is named: then there is no limit, and so no largest batch.
pub(super) fn room_of_largest(reading: &Reading<'_>) -> Option<u64> {
    room(reading, false).filter(|&room| reading.takes_largest && room < u64::MAX)
}

/// Returns the largest batch of a training step in an arena of `room` bytes. 1 if not even one sample fits.
pub(crate) fn largest_batch(readings: &Readings<'_>, blueprint: &Blueprint, room: u64) -> Result<u64, LowerError> {
    Ok(blueprint.largest_fitted(&nominal(readings), room)?.map_or(1, |found| found.batch))
}

/// Returns the bytes that the arena of a constant's program may have on its target cards. `None` unless headroom and scratch limits are literals.
pub(crate) fn room_of(reading: &Reading<'_>) -> Option<u64> {
    room(reading, false)
}

/// Returns the bytes that the arena of the training step may have. `None` unless headroom and scratch limits are literals.
///
/// If `may_be_unchecked`, there is no limit while the environment switches the check off.
fn room(reading: &Reading<'_>, may_be_unchecked: bool) -> Option<u64> {
    reading.conv_workspace?;
    reading.headroom?;
    Some(with_environment(reading, |environment| {
        let unchecked = environment.unchecked.filter(|_| may_be_unchecked);
        target_cards(reading, Environment { unchecked, ..environment }).room()
    }))
}

#[cfg(test)]
mod tests {
    use gpumem_core::cards::RTX_3060;
    use gpumem_core::lower::tables;
    use gpumem_core::memory::budget::{Line, budget_at, lower_bound_at};
    use gpumem_core::memory::tables::Workspaces;
    use gpumem_core::memory::target_cards::TargetCards;
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
        flat(crate::network(network.parse().unwrap()))
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

    /// At a written batch, const evaluation makes two plans. It does not plan each level at one batch after the other.
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
        let workspaces = Workspaces::of(&TargetCards::at(&[RTX_3060]), Train::DEFAULT.conv_workspace);
        let tables = [plain, leaner].map(tables);
        let tables = tables.each_ref().map(|tables| tables.as_tables().with_workspaces(workspaces));
        let arena = |index: usize| budget_at(&tables[index], batch, Precision::F32).unwrap()[Line::Arena];
        assert!(arena(0) > room && arena(1) <= room, "{} and {} of {room}", arena(0), arena(1));
        let more = batch + batch / 8 + 1;
        assert!(lower_bound_at(&tables[1], more, Precision::F32).unwrap() > room, "{more} fits, too");
    }

    /// With known sizes the macro takes the fewest chunks that fit. Otherwise const evaluation chooses among programs with more and more of them.
    #[test]
    fn chunks_are_chosen_among_programs() {
        let expanded = |chunks: &str, others: &str| {
            let network = format!(
                "pub struct Net;
                const TRAIN: Train =
                    Train {{ batch: 64, loss: CrossEntropy {{ chunks: {chunks} }}, cards: [RTX_3060], {others} }};
                fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, 50000> {{ [Embedding(50000, 8), Linear(50000)] }}"
            );
            let counts = programs(&flat(crate::network(network.parse().unwrap())));
            counts.iter().map(Program::logit_chunks).collect::<Vec<u64>>()
        };
        assert_eq!(expanded("8", ""), [8]);
        assert_eq!(expanded("Auto", ""), [1, 2]);
        assert_eq!(expanded("Auto", "headroom: gib(9.0)"), [1, 8]);
        let all = expanded("Auto", "headroom: HEADROOM");
        assert!(all[..4] == [1, 2, 4, 8] && all.is_sorted(), "{all:?}");
        // A card with enough memory has whole logits.
        assert_eq!(expanded("Auto", "precision: Bf16"), [1]);
    }

    /// The backward pass is ordered for the batch that was found, also in a step that recomputes nothing.
    #[test]
    fn a_step_in_which_memory_decides_nothing_is_lowered_for_its_batch() {
        let tokens = expanded("None", "cards: [RTX_3060]");
        assert!(place_of(&tokens, "largest_found").is_some() && place_of(&tokens, "largest_fitting").is_none());
    }

    /// Const evaluation searches the batch if the macro does not know the numbers.
    #[test]
    fn what_is_not_known_here_is_not_found_here() {
        for (checkpoint, cards) in [
            ("Auto", "cards: [RTX_3060], headroom: HEADROOM"),
            ("Auto", "cards: [RTX_3060], conv_workspace: 1 << 20"),
            ("None", "cards: [RTX_3060], headroom: HEADROOM"),
        ] {
            let tokens = expanded(checkpoint, cards);
            let names = ["largest_found", "largest_fitting"].map(|name| place_of(&tokens, name).is_some());
            assert_eq!(names, [false, true], "{checkpoint}, {cards}");
        }
    }
}
