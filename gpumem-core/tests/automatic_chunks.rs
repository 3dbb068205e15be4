//! `chunks: Auto`: as few chunks of the logits as fit, weighed together with recomputation.
#![cfg(feature = "lower")]

mod common;

use common::chain as layers;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Blueprint, ChosenStep, Leaner, Sizes, Steps, Term, tables};
use gpumem_core::memory::budget::{Line, budget_at};
use gpumem_core::memory::refusal::{InChunks, Remedies, Remedy};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::Program;
use gpumem_core::program::loss::{Chunks, LossOptions};
use gpumem_core::train::{ConvNorm, Descent};
use gpumem_core::{Checkpoint, Precision, Update};

const WORKSPACES: Workspaces = Workspaces { product: 0, convolution: 0 };
const BATCH: u64 = 32;

fn setting() -> Sizes {
    Sizes::new(BATCH, Precision::F32, WORKSPACES)
}

fn arena(program: &Program) -> u64 {
    let tables = tables(program);
    budget_at(&tables.as_tables().with_workspaces(WORKSPACES), BATCH, Precision::F32).unwrap()[Line::Arena]
}

/// A language model whose logits are most of a step, with this loss.
fn words(layers_before: &str, loss: Vec<Term>, checkpoint: Checkpoint) -> Blueprint {
    let mut graph = Graph::default();
    let input = graph.input(common::tokens(64)).unwrap();
    let output = layers(&mut graph, input, &format!("Embedding(400, 4) | {layers_before} | LayerNorm | Linear(400)"));
    let (update, descent) = (Update::Fused, Descent::PLAIN);
    let training =
        Some(Steps { loss, moments: 0, update, checkpoint, descent, conv_norm: ConvNorm::Fused, ordered_at: None });
    Blueprint { graph, outputs: vec![output], training, cached: None, parts: Default::default() }
}

fn term(chunks: Chunks) -> Term {
    Term { options: LossOptions { chunks, ..LossOptions::DEFAULT }, ..Term::CROSS_ENTROPY }
}

const SHALLOW: &str = "Linear(8) | Tanh";

/// Layers whose saved tensors are about as large as the logits.
const DEEP: &str = "Linear(64) | Gelu | Linear(64) | Gelu | Linear(64) | Gelu | Linear(64) | Gelu | Linear(8) | Tanh";

fn shallow(chunks: Chunks) -> Blueprint {
    words(SHALLOW, vec![term(chunks)], Checkpoint::None)
}

/// The alternatives of a refused step.
fn found(blueprint: &Blueprint, program: &Program, room: u64) -> Vec<Remedy> {
    let Remedies { leanest, planned, .. } = blueprint.remedies(program, &setting(), room);
    assert_eq!(leanest, None);
    let found: Vec<Remedy> = planned.into_iter().flatten().collect();
    assert!(found.iter().all(|remedy| remedy.arena <= room), "{found:?}");
    found
}

/// The step with a written number of chunks, in the order that needs least memory.
fn written(chunks: u64) -> Program {
    shallow(Chunks::Count(chunks)).chosen(&setting(), u64::MAX).unwrap().unwrap()
}

/// The level that is taken for `room` bytes; `None` if the step fits as it is.
fn leaner(blueprint: &Blueprint, room: u64) -> Option<Leaner> {
    blueprint.fitted(&setting(), |_| room).unwrap().unwrap().leaner
}

#[test]
fn the_fewest_chunks_that_fit() {
    let blueprint = shallow(Chunks::Auto);
    let whole = arena(&written(1));
    assert!(leaner(&blueprint, whole).is_none(), "the step fits as it is");
    let choices = blueprint.choices(&setting()).unwrap().unwrap();
    assert_eq!(choices.chosen(u64::MAX).unwrap(), written(1));
    let mut room = whole - 1;
    for count in [2, 4, 8, 16] {
        let expected = written(count);
        assert!(arena(&expected) < room, "{count} chunks need less");
        let Leaner { program, budget, fits, chunks, more, .. } = leaner(&blueprint, room).unwrap();
        assert!(program == expected && fits && more.is_none(), "{count}");
        assert_eq!((chunks.unwrap().count, budget[Line::Arena]), (count, arena(&expected)));
        assert_eq!(program.logit_chunks(), count);
        // The command and the compiler take it, too.
        assert_eq!(choices.chosen(room).unwrap(), expected);
        assert_eq!(blueprint.chosen(&setting(), room).unwrap(), Some(expected.clone()));
        room = arena(&expected) - 1;
    }
    // The last is taken even if nothing fits.
    let last = leaner(&blueprint, 0).unwrap();
    assert!(!last.fits && last.chunks.unwrap().count >= 16);
    assert_eq!(choices.chosen(0).unwrap(), last.program);
}

/// The programs between which the compiler chooses need less and less, and have the tables of one step.
#[test]
fn programs_of_one_step() {
    for checkpoint in [Checkpoint::None, Checkpoint::Norms, Checkpoint::Cheap, Checkpoint::Auto] {
        let blueprint = words(DEEP, vec![term(Chunks::Auto)], checkpoint);
        let programs = blueprint.trainings(&setting()).unwrap();
        assert!(programs.len() > 3 && programs.len() <= 1 + Sizes::LEVELS, "{checkpoint:?}: {}", programs.len());
        let peak = |program: &Program| {
            let tables = tables(program);
            gpumem_core::memory::budget::lower_bound_at(
                &tables.as_tables().with_workspaces(WORKSPACES),
                BATCH,
                Precision::F32,
            )
            .unwrap()
        };
        assert!(programs.iter().map(peak).is_sorted_by(|more, less| more > less), "{checkpoint:?}");
        let all: Vec<_> = programs.iter().map(tables).collect();
        for tables in &all[1..] {
            let [one, other] = [&all[0], tables];
            assert_eq!(one.parameters, other.parameters);
            assert_eq!(one.buffers, other.buffers);
            assert_eq!(one.batch, other.batch);
            assert_eq!(one.caches, other.caches);
            let flags = |it: &gpumem_core::lower::OwnedTables| {
                (it.moments, it.averages, it.holds_gradients, it.wide_sums, it.training, it.micro_batches, it.offloads)
            };
            assert_eq!(flags(one), flags(other));
        }
    }
}

/// If the head shares its weight, the leanest step computes logits twice. A refusal then offers `Auto`, since no number of chunks does that.
#[test]
fn logits_are_computed_twice_if_that_needs_less() {
    for checkpoint in [Checkpoint::None, Checkpoint::Auto] {
        let of = |chunks| {
            let mut graph = Graph::default();
            let input = graph.input(common::tokens(64)).unwrap();
            let hidden =
                layers(&mut graph, input, "Embedding(20000, 16) | Linear(512) | Tanh | Linear(16) | LayerNorm");
            let output = common::again(&mut graph, hidden, "Tied", 0);
            Blueprint { graph, outputs: vec![output], ..words(SHALLOW, vec![term(chunks)], checkpoint) }
        };
        let last = leaner(&of(Chunks::Auto), 0).unwrap();
        let InChunks { count, time, twice } = last.chunks.unwrap();
        assert!(twice && count > 1 && time > 0);
        let written = of(Chunks::Count(count)).trainings(&setting()).unwrap();
        let least = written.iter().map(arena).min().unwrap();
        let (found, gradient) = (arena(&last.program), 20000 * 16 * 4);
        assert!(found < least - gradient / 2, "{found} of {least}");
        let whole = of(Chunks::WHOLE).training(Precision::F32).unwrap().unwrap();
        let remedies = of(Chunks::WHOLE).remedies(&whole, &setting(), (found + least) / 2);
        let told = remedies.planned[0].unwrap();
        assert!(told.text().as_str().contains("CrossEntropy { chunks: Auto } (about +"), "{}", told.text().as_str());
    }
}

/// Both together take no more time than chunks alone or recomputation alone.
#[test]
fn chunks_and_recomputation_are_weighed() {
    let of = |chunks, checkpoint| words(DEEP, vec![term(chunks)], checkpoint);
    let both = of(Chunks::Auto, Checkpoint::Auto);
    let alone = [of(Chunks::Auto, Checkpoint::None), of(Chunks::WHOLE, Checkpoint::Auto)];
    let [joint, chunked, recomputed] =
        [&both, &alone[0], &alone[1]].map(|blueprint| blueprint.choices(&setting()).unwrap().unwrap());
    let whole = arena(&joint.chosen(u64::MAX).unwrap());
    let least = [&joint, &chunked, &recomputed].map(|choices| arena(&choices.chosen(0).unwrap()));
    assert!(least[0] < least[1] && least[0] < least[2], "{least:?}");
    let (mut mixed, mut cheaper) = (0, 0);
    for room in (0..=60).map(|part| least[0] + (whole - least[0]) * part / 60) {
        let found = joint.step(room).unwrap();
        assert!(arena(&found.program) <= room, "{room}");
        mixed += usize::from(found.chunks.is_some() && found.more.is_some());
        for other in [&chunked, &recomputed] {
            let other: ChosenStep = other.step(room).unwrap();
            if arena(&other.program) <= room {
                // Each of the two parts of a time is rounded up.
                assert!(found.time() <= other.time() + 1, "{room}: {} and {}", found.time(), other.time());
                cheaper += usize::from(found.time() < other.time());
            }
        }
        // Equal times have the fewest chunks.
        let fitted = both.fitted(&setting(), |_| room).unwrap().unwrap();
        let program = fitted.leaner.map_or(fitted.plain, |leaner| leaner.program);
        assert_eq!(program, found.program, "{room}");
    }
    assert!(mixed > 0 && cheaper > 0, "{mixed} and {cheaper}");
}

#[test]
fn budgets_and_largest_batches_have_chunks() {
    let share = words(DEEP, vec![term(Chunks::Auto)], Checkpoint::Budget(0.5));
    let fitted =
        share.fitted(&setting(), |budget| budget[Line::Arena] - budget[Line::Activations] / 2).unwrap().unwrap();
    let leaner = fitted.leaner.unwrap();
    assert!(leaner.fits && leaner.budget[Line::Activations] <= fitted.budget[Line::Activations] / 2);
    let room = 4 * arena(&written(1));
    let largest = |chunks| {
        let found = shallow(chunks).largest_fitted(&setting(), room).unwrap().unwrap();
        let budget = found.fitted.leaner.as_ref().map_or(&found.fitted.budget, |leaner| &leaner.budget);
        assert!(budget[Line::Arena] <= room);
        found.batch
    };
    assert!(largest(Chunks::Auto) > 2 * largest(Chunks::WHOLE));
}

#[test]
fn a_blueprint_keeps_the_choice() {
    for chunks in [Chunks::Auto, Chunks::WHOLE, Chunks::Count(7)] {
        let blueprint = shallow(chunks);
        assert_eq!(Blueprint::decode(&blueprint.encode()), Some(blueprint));
    }
    let whole = words(SHALLOW, vec![Term { target: 1, ..term(Chunks::Auto) }, term(Chunks::WHOLE)], Checkpoint::None);
    assert!(whole.with_automatic_chunks().is_none(), "two terms measure the logits");
    // A blueprint from elsewhere may ask for chunks of what has none.
    let program = whole.chosen(&setting(), 0).unwrap().unwrap();
    assert_eq!(program.logit_chunks(), 1);
}

/// Alternatives of a step without chunks: as few as fit, with their price.
#[test]
fn logits_in_chunks() {
    let (blueprint, plain) =
        (shallow(Chunks::WHOLE), shallow(Chunks::WHOLE).training(Precision::F32).unwrap().unwrap());
    let found_in = |room| found(&blueprint, &plain, room);
    let arena_of = |chunks| arena(&written(chunks));
    let rooms =
        [(2, arena_of(1) - 1), (2, arena_of(2)), (4, arena_of(2) - 1), (32, arena_of(16) - 1), (32, arena_of(32))];
    for (count, room) in rooms {
        let remedy = found_in(room)[0];
        let chunks = Some(InChunks { count, time: remedy.time(), twice: false });
        // The quickest packing that fits need not be the smallest.
        assert!((arena_of(count)..=room).contains(&remedy.arena), "{room}: {remedy:?}");
        assert_eq!(remedy, Remedy { chunks, ..Remedy::as_written(remedy.arena) }, "{room}");
    }
    // Those that are written stay, and so does what cannot be in chunks.
    let program = written(2);
    let remedies = found(&shallow(Chunks::Count(2)), &program, arena_of(2) - 1);
    assert!(remedies.iter().all(|remedy| remedy.chunks.is_none()));
    let twice = words(SHALLOW, vec![Term::CROSS_ENTROPY, Term { target: 1, ..Term::CROSS_ENTROPY }], Checkpoint::None);
    let program = twice.training(Precision::F32).unwrap().unwrap();
    let remedies = found(&twice, &program, arena(&program) - 1);
    assert!(remedies.iter().all(|remedy| remedy.chunks.is_none()));
    // A step with `Auto` has them already, so no alternative names them.
    let automatic = shallow(Chunks::Auto);
    let program = automatic.chosen(&setting(), 0).unwrap().unwrap();
    let remedies = found(&automatic, &program, arena(&program) - 1);
    assert!(!remedies.is_empty() && remedies.iter().all(|remedy| remedy.chunks.is_none()), "{remedies:?}");
}

/// If chunks alone are not enough, but recomputation alone is, both are offered where they take less time.
#[test]
fn chunks_with_less_recomputation() {
    let blueprint = words(DEEP, vec![term(Chunks::WHOLE)], Checkpoint::None);
    let of = |chunks, checkpoint| words(DEEP, vec![term(chunks)], checkpoint).choices(&setting()).unwrap().unwrap();
    let [chunked, recomputed] = [of(Chunks::Auto, Checkpoint::None), of(Chunks::WHOLE, Checkpoint::Auto)];
    let [least_chunked, least] = [&chunked, &recomputed].map(|choices| arena(&choices.chosen(0).unwrap()));
    assert!(least < least_chunked, "{least} and {least_chunked}");
    let plain = blueprint.chosen(&setting(), u64::MAX).unwrap().unwrap();
    let found = found(&blueprint, &plain, least_chunked - 1);
    let [both, alone, ..] = &found[..] else { panic!("{found:?}") };
    assert!(both.chunks.is_some() && both.more.is_some() && alone.chunks.is_none(), "{found:?}");
    assert!(both.time() < alone.time(), "{found:?}");
}
