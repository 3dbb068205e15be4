//! What is told where a training step does not fit: other programs of it, each of which was planned.
#![cfg(feature = "lower")]

mod chain;
mod common;

use chain::{Chain, TENSORS};
use common::{chain as layers, numbers};
use gpumem_core::cards::RTX_3060;
use gpumem_core::graph::{Graph, Lora};
use gpumem_core::lower::{Blueprint, Sizes, Steps, Term, tables};
use gpumem_core::memory::budget::{Line, Plan, budget_at, plan};
use gpumem_core::memory::refusal::{
    InChunks, Leanest, Offloaded, Remedies, Remedy, Shared, Slopes, Split, refusal_with,
};
use gpumem_core::memory::tables::{Tables, Workspaces};
use gpumem_core::memory::target_cards::TargetCards;
use gpumem_core::number::{Coding, Half};
use gpumem_core::program::Measure;
use gpumem_core::program::Program;
use gpumem_core::program::loss::{LossOptions, Mining, Reduction};
use gpumem_core::train::optim::{Adafactor, AdamW, AdamW8bit, Optimizer, Sgd};
use gpumem_core::train::{ConvNorm, Descent, Offload, Ranks, Shard};
use gpumem_core::{Checkpoint, Precision, Update};

const WORKSPACES: Workspaces = Workspaces { product: 0, convolution: 0 };

fn blueprint(text: &str, loss: Term, checkpoint: Checkpoint) -> Blueprint {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 16, 16])).unwrap();
    let output = layers(&mut graph, input, text);
    let (update, descent) = (Update::Fused, Descent::PLAIN);
    let training = Some(Steps {
        loss: vec![loss],
        moments: 1,
        update,
        checkpoint,
        descent,
        conv_norm: ConvNorm::Fused,
        ordered_at: None,
    });
    Blueprint { graph, outputs: vec![output], training, cached: None, parts: Default::default() }
}

fn setting(batch: u64) -> Sizes {
    Sizes::new(batch, Precision::F32, WORKSPACES)
}

fn arena(program: &Program, batch: u64) -> u64 {
    budget_at(&tables(program).as_tables().with_workspaces(WORKSPACES), batch, Precision::F32).unwrap()[Line::Arena]
}

/// The arena of a step in so many parts.
fn in_parts(blueprint: &Blueprint, parts: u64, batch: u64) -> u64 {
    let mut blueprint = blueprint.clone();
    blueprint.training.as_mut().unwrap().descent.micro_batches = parts;
    arena(&blueprint.training(Precision::F32).unwrap().unwrap(), batch)
}

/// What is found of a step with nothing in `lora`.
fn found(blueprint: &Blueprint, program: &Program, batch: u64, room: u64) -> Vec<Remedy> {
    let remedies = blueprint.remedies(program, &setting(batch), room);
    assert_eq!(remedies.leanest, None);
    let found: Vec<Remedy> = remedies.planned.into_iter().flatten().collect();
    assert!(found.iter().all(|remedy| remedy.arena <= room), "{found:?}");
    found
}

/// The blueprint with this in host memory, and its step.
fn offloading(blueprint: &Blueprint, offload: Offload) -> (Blueprint, Program) {
    let mut other = blueprint.clone();
    other.training.as_mut().unwrap().descent.offload = offload;
    let program = other.training(Precision::F32).unwrap().unwrap();
    (other, program)
}

const MAPS: &str =
    "Conv2d(16, 3, padding = 1) | Tanh | Conv2d(16, 3, padding = 1) | BatchNorm2d | Tanh | Gelu | Flatten | Linear(3)";

#[test]
fn the_fewest_parts_that_fit() {
    let blueprint = blueprint(MAPS, Term::MSE, Checkpoint::None);
    let plain = blueprint.training(Precision::F32).unwrap().unwrap();
    let found = |room| found(&blueprint, &plain, 24, room);
    assert_eq!(found(arena(&plain, 24)), []);
    assert_eq!(found(u64::MAX), []);
    for (parts, fewer) in [(2, 1), (3, 2), (4, 3), (6, 4), (8, 6), (12, 8), (24, 12)] {
        let room = in_parts(&blueprint, parts, 24);
        assert!(in_parts(&blueprint, fewer, 24) > room);
        let split = Some(Split { micro_batches: parts, has_statistics: true });
        let expected = Remedy { split, ..Remedy::as_written(room) };
        assert!(found(room).contains(&expected), "{parts}: {:?}", found(room));
    }
    // Beyond that, nothing is left to split, but something to compute again; and then nothing at all.
    let least = in_parts(&blueprint, 24, 24);
    let both = found(least - 1)[0];
    assert!(both.arena < least && both.more.is_some() && both.split.is_some_and(|split| split.micro_batches == 24));
    assert_eq!(found(0), []);
}

/// Ranks keep shards of as few tensors as it takes, and there are more of them only if shards of all are too large.
#[test]
fn shards_and_ranks() {
    let mut blueprint =
        blueprint("Flatten | Linear(256) | Tanh | Linear(256) | Tanh | Linear(3)", Term::MSE, Checkpoint::None);
    let steps = blueprint.training.as_mut().unwrap();
    steps.moments = 2;
    steps.descent.ranks = Ranks { count: 2, least_sharded: 1000, ..Ranks::ALONE };
    let on = |count, shard| {
        let mut other = blueprint.clone();
        other.training.as_mut().unwrap().descent.ranks = Ranks { count, shard, least_sharded: 1000, ..Ranks::ALONE };
        arena(&other.training(Precision::F32).unwrap().unwrap(), 24)
    };
    let plain = blueprint.training(Precision::F32).unwrap().unwrap();
    let found = |room| found(&blueprint, &plain, 24, room)[0];
    let shared = |room| found(room).shared.map(|Shared { ranks, shard, .. }| (ranks, shard));
    let rooms = [on(2, Shard::Optimizer), on(2, Shard::Parameters), on(4, Shard::Parameters)];
    assert!(rooms.is_sorted_by(|one, other| one > other), "{rooms:?}");
    assert_eq!(shared(rooms[0]), Some((None, Some(Shard::Optimizer))));
    assert_eq!(shared(rooms[1]), Some((None, Some(Shard::Parameters))));
    assert_eq!(shared(rooms[2]), Some((Some(4), Some(Shard::Parameters))));
    assert_eq!(found(rooms[2]).arena, rooms[2]);
    assert!(found(rooms[2]).shared.unwrap().sent > found(rooms[0]).shared.unwrap().sent);
}

/// A batch whose samples are compared with each other stays whole, whatever else is written in another way.
#[test]
fn compared_samples_are_not_split() {
    let mut blueprint = blueprint(MAPS, Term::MSE, Checkpoint::None);
    let hardest = LossOptions { mining: Mining::Hardest, ..LossOptions::DEFAULT };
    blueprint.training.as_mut().unwrap().loss[0] = Term { options: hardest, ..Term::of(Measure::TripletMargin) };
    let plain = blueprint.training(Precision::F32).unwrap().unwrap();
    let (whole, mut others) = (arena(&plain, 24), 0);
    for part in [10, 8, 6, 4, 3, 2] {
        let found = found(&blueprint, &plain, 24, whole / 11 * part);
        assert!(found.iter().all(|remedy| remedy.split.is_none()), "{found:?}");
        others += found.len();
    }
    assert!(others > 0, "there are other ways");
}

/// Where two are not enough, three; and nothing where these are not.
#[test]
fn three_together() {
    let blueprint = blueprint(MAPS, Term::MSE, Checkpoint::None);
    let plain = blueprint.training(Precision::F32).unwrap().unwrap();
    let found = |room| found(&blueprint, &plain, 24, room);
    let of = |remedy: &Remedy| [remedy.split.is_some(), remedy.offload.is_some(), remedy.more.is_some()];
    let two = found(in_parts(&blueprint, 24, 24) - 1);
    assert_eq!(two.iter().map(of).collect::<Vec<_>>(), [[true, false, true], [true, true, false]]);
    let less = two.iter().map(|remedy| remedy.arena).min().unwrap() - 1;
    let three = found(less);
    assert_eq!(three.iter().map(of).collect::<Vec<_>>(), [[true; 3]]);
    assert_eq!(found(three[0].arena / 2), []);
}

/// Where the step that makes outputs of normalisations again is enough, it is what `Auto` takes and what is told of a step that keeps all.
#[test]
fn outputs_of_normalisations() {
    let text = format!("{}Flatten | Linear(3)", "Conv2d(16, 3, padding = 1) | BatchNorm2d | Silu | ".repeat(5));
    let of = |checkpoint| blueprint(&text, Term::MSE, checkpoint);
    let arena_of = |checkpoint| arena(&of(checkpoint).training_for(&setting(24)).unwrap().unwrap(), 24);
    let (less, all) = (arena_of(Checkpoint::Norms), arena_of(Checkpoint::None));
    assert!(less < all && arena_of(Checkpoint::Auto) == all);
    let fitted = of(Checkpoint::Auto).fitted(&setting(24), |_| less).unwrap().unwrap();
    let leaner = fitted.leaner.unwrap();
    assert_eq!((arena(&fitted.plain, 24), leaner.budget[Line::Arena], leaner.number[0]), (all, less, 1));
    let levels = of(Checkpoint::Auto).trainings(&setting(24)).unwrap();
    assert_eq!((levels.len() as u64, arena(&levels[1], 24)), (leaner.number[1], less));
    // Some passes over maps, and no product.
    let [flops, time] = leaner.more.unwrap();
    assert!(flops == 0 && (1..200).contains(&time), "{flops}, {time}");
    let plain = of(Checkpoint::None).training_for(&setting(24)).unwrap().unwrap();
    let told = found(&of(Checkpoint::None), &plain, 24, less);
    assert_eq!(told[0], Remedy { more: leaner.more, ..Remedy::as_written(less) });
    // Beyond that, what is told of either is the same level; of the one that makes them again, the time beyond that.
    let lean = of(Checkpoint::Norms).training_for(&setting(24)).unwrap().unwrap();
    let [beyond, of_lean] = [(Checkpoint::None, &plain), (Checkpoint::Norms, &lean)]
        .map(|(checkpoint, program)| found(&of(checkpoint), program, 24, less - 1)[0]);
    let [more, more_of_lean] = [beyond, of_lean].map(|remedy| remedy.more.unwrap()[1]);
    assert!(beyond.arena == of_lean.arena && 0 < more_of_lean && more_of_lean < more, "{beyond:?} {of_lean:?}");
}

/// One search serves several arenas: each gets the program that it would get alone.
#[test]
fn one_search_for_all_arenas() {
    let text = format!("{}Flatten | Linear(3)", "Conv2d(16, 3, padding = 1) | BatchNorm2d | Silu | ".repeat(8));
    for checkpoint in
        [Checkpoint::Auto, Checkpoint::Budget(0.6), Checkpoint::Norms, Checkpoint::Cheap, Checkpoint::None]
    {
        let blueprint = blueprint(&text, Term::MSE, checkpoint);
        let choices = blueprint.choices(&setting(24)).unwrap().unwrap();
        let whole = arena(&blueprint.training(Precision::F32).unwrap().unwrap(), 24);
        let rooms = (0..=12).map(|twelfth| whole * twelfth / 12).chain([u64::MAX]);
        let mut programs: Vec<Program> = rooms
            .map(|room| {
                let program = choices.chosen(room).unwrap();
                assert_eq!(
                    Some(&program),
                    blueprint.chosen(&setting(24), room).unwrap().as_ref(),
                    "{checkpoint:?}, {room}"
                );
                program
            })
            .collect();
        programs.dedup();
        let is_leveled = matches!(checkpoint, Checkpoint::Auto | Checkpoint::Budget(_));
        assert_eq!(programs.len() > 3, is_leveled, "{checkpoint:?}: {} programs", programs.len());
    }
}

#[test]
fn recomputation_alone() {
    let text =
        "Conv2d(64, 3, padding = 1) | Tanh | Gelu | Tanh | Gelu | Conv2d(16, 3, padding = 1) | Flatten | Linear(3)";
    let blueprint = blueprint(text, Term::MSE, Checkpoint::None);
    let plain = blueprint.training(Precision::F32).unwrap().unwrap();
    let found = found(&blueprint, &plain, 24, arena(&plain, 24) - 1);
    let Some(&Remedy { arena, more: Some([_, time]), .. }) = found.first() else { panic!("{found:?}") };
    assert!(time > 0);
    assert_eq!(found[0], Remedy { more: found[0].more, ..Remedy::as_written(arena) });
}

/// Also where the mean divides by what all targets of the batch come to.
#[test]
fn losses_that_divide_by_their_targets_are_split() {
    let options = LossOptions { ignored: Some(0), ..LossOptions::DEFAULT };
    for reduction in [Reduction::Mean, Reduction::Sum] {
        let options = LossOptions { reduction, ..options.clone() };
        let blueprint = blueprint(MAPS, Term { options, ..Term::CROSS_ENTROPY }, Checkpoint::None);
        let plain = blueprint.training(Precision::F32).unwrap().unwrap();
        let found = found(&blueprint, &plain, 24, arena(&plain, 24) - 1);
        assert!(found.iter().any(|remedy| remedy.split.is_some()));
    }
}

static CHAIN: Chain = Chain::new(46_000_000, 12_000_000);
static PARAMETERS: [[u64; 4]; 1] = chain::parameters(46_000_000);
static STEP: Tables = chain::step(&CHAIN, &PARAMETERS);

/// The lines of a refusal that say what fits.
fn lines(planned: &[Remedy]) -> Vec<String> {
    let plan: Plan<TENSORS> = plan(&STEP, 48, Precision::F32);
    let planned = core::array::from_fn(|index| planned.get(index).copied());
    let remedies = Remedies { planned, ..Remedies::UNKNOWN };
    let text = refusal_with("Chain", &STEP, &plan, &TargetCards::at(&[RTX_3060]), remedies).unwrap();
    let (_, text) = text.as_str().split_once("\n  fits with     ").unwrap();
    let (text, _) = text.split_once("\n  fits on ").unwrap();
    text.split(&format!("\n{:16}", "")).map(String::from).collect()
}

#[test]
fn texts() {
    let small = Remedy::as_written(1 << 30);
    let split = Some(Split { micro_batches: 2, has_statistics: false });
    let parts = Remedy { split, ..small };
    let more = Some([41, 102]);
    let (precision, batch) = ("precision: Mixed(Bf16)", "batch 34");
    assert_eq!(lines(&[]), [precision, batch]);
    assert_eq!(lines(&[parts]), ["micro_batches: 2", precision, batch]);
    let auto = "checkpoint: Auto (+5 % FLOPs, about +11 % time)";
    let recomputed = Remedy { more, ..small };
    assert_eq!(lines(&[recomputed, parts]), [auto, "micro_batches: 2", precision, batch]);
    let both = Remedy { more, split: Some(Split { micro_batches: 2, has_statistics: true }), ..small };
    let said = format!("micro_batches: 2 (BatchNorm looks at each part) and {auto}");
    assert_eq!(lines(&[both]), [&said, precision, batch]);
    // What does not fit this card is not said.
    assert_eq!(
        lines(&[Remedy { arena: 1 << 40, ..recomputed }, Remedy { arena: 1 << 40, ..parts }]),
        [precision, batch]
    );
    // What goes over the bus comes behind what does not.
    let of = |what| Remedy { offload: Some(Offloaded { what, moved: 23 << 30, ms: 862 }), ..small };
    let (states, parked) = (of(Offload::OptimizerState), of(Offload::Activations));
    let bus = |what: &str| format!("offload: {what} (23.00 GiB over the bus each step, about 0.9 s)");
    let [on_bus, park] = ["OptimizerState", "Activations"].map(bus);
    assert_eq!(lines(&[states]), [precision, &on_bus, batch]);
    assert_eq!(lines(&[Remedy { more, ..states }]), [precision, &format!("{on_bus} and {auto}"), batch]);
    assert_eq!(lines(&[Remedy { split, ..states }]), [precision, &format!("micro_batches: 2 and {on_bus}"), batch]);
    assert_eq!(lines(&[parked, states]), [precision, &park, &on_bus, batch]);
    assert_eq!(lines(&[of(Offload::All)]), [precision, &bus("All"), batch]);
    assert_eq!(lines(&[Remedy { arena: 1 << 40, ..states }]), [precision, batch]);
    // No more than three, and the batch.
    assert_eq!(lines(&[recomputed, parts, states]), [auto, "micro_batches: 2", precision, batch]);
    let in_place = |slopes| Remedy { in_place: Some(slopes), ..small };
    let abn = "InplaceAbn for BatchNorm2d and LeakyRelu";
    assert_eq!(lines(&[in_place(Slopes::Default), recomputed, parts]), [abn, auto, "micro_batches: 2", batch]);
    let abn = "InplaceAbn(activation_param = slope) for BatchNorm2d and LeakyRelu(slope)";
    let more = Remedy { more, ..in_place(Slopes::Written) };
    assert_eq!(lines(&[more]), [&format!("{abn} and {auto}"), precision, batch]);
    let in_chunks = |time| Remedy { chunks: Some(InChunks { count: 8, time, twice: false }), ..small };
    let chunked = in_chunks(0);
    assert_eq!(lines(&[chunked, parts]), ["CrossEntropy { chunks: 8 }", "micro_batches: 2", precision, batch]);
    let dear = "CrossEntropy { chunks: 8 } (about +2 % time)";
    assert_eq!(lines(&[in_chunks(11)]), [dear, precision, batch]);
    let with_auto = Remedy { more: recomputed.more, ..in_chunks(11) };
    assert_eq!(lines(&[with_auto]), [&format!("{dear} and {auto}"), precision, batch]);
    assert_eq!(
        lines(&[Remedy { split, ..chunked }]),
        ["CrossEntropy { chunks: 8 } and micro_batches: 2", precision, batch]
    );
    let base = Remedy { base: Some(Coding::Nf4), ..small };
    assert_eq!(lines(&[base]), ["base = Nf4 in lora(..)", precision, batch]);
}

/// The changes that the refused step makes by itself: recomputation, chunks, or both.
#[test]
fn texts_of_the_leanest_step() {
    let plan: Plan<TENSORS> = plan(&STEP, 48, Precision::F32);
    let line = |recomputes, chunks| {
        let leanest = Some(Leanest { without: 20 << 30, recomputes, chunks });
        let remedies = Remedies { leanest, ..Remedies::UNKNOWN };
        let text = refusal_with("Chain", &STEP, &plan, &TargetCards::at(&[RTX_3060]), remedies).unwrap();
        let begin = text.as_str().find(if recomputes { "  checkpoint " } else { "  chunks " }).unwrap();
        text.as_str()[begin..].lines().next().unwrap().to_string()
    };
    let needs = gpumem_core::report::text::bytes((20 << 30) + RTX_3060.reserve());
    let said = "  checkpoint    all that helps is computed a second time";
    assert_eq!(line(true, 1), format!("{said}; without that it needs {needs}"));
    assert_eq!(line(true, 8), format!("{said}, and logits are in 8 chunks; without both it needs {needs}"));
    let said = "  chunks        logits are in 32 chunks, and more do not help";
    assert_eq!(line(false, 32), format!("{said}; without that it needs {needs}"));
}

/// Where a batch is in parts, mixed precision is said where it was planned, and its bytes fit this card.
#[test]
fn texts_of_a_batch_in_parts() {
    let tables = STEP.with_micro_batches(2);
    let plan: Plan<TENSORS> = plan(&tables, 96, Precision::F32);
    let lines = |mixed| {
        let remedies = Remedies { mixed, ..Remedies::UNKNOWN };
        let text = refusal_with("Chain", &tables, &plan, &TargetCards::at(&[RTX_3060]), remedies).unwrap();
        let (_, text) = text.as_str().split_once("\n  fits with     ").unwrap();
        let (line, _) = text.split_once('\n').unwrap();
        line.to_string()
    };
    assert_eq!(lines(Some(1 << 30)), "precision: Mixed(Bf16)");
    assert_eq!([lines(None), lines(Some(1 << 40))], ["precision: Bf16", "precision: Bf16"]);
}

/// Wide layers, whose states are most of a step.
const WIDE: &str = "Flatten | Linear(4000) | Tanh | Linear(2000) | Tanh | Linear(3)";

fn wide(optimizer: Optimizer, checkpoint: Checkpoint) -> Blueprint {
    let mut blueprint = blueprint(WIDE, Term::MSE, checkpoint);
    blueprint.training.as_mut().unwrap().moments = optimizer.moments();
    blueprint
}

#[test]
fn optimizer_state_in_host_memory() {
    let adam = wide(Optimizer::AdamW(AdamW::DEFAULT), Checkpoint::None);
    let plain = adam.training(Precision::F32).unwrap().unwrap();
    let (offloads, program) = offloading(&adam, Offload::OptimizerState);
    let room = arena(&program, 2);
    assert!(room < arena(&plain, 2) * 3 / 4);
    let parameters: u64 = adam.graph.parameters.iter().map(|it| it.shape.elements().unwrap()).sum();
    let (moved, ms) = (16 * parameters, 8 * parameters / 25_000_000);
    let offload = Some(Offloaded { what: Offload::OptimizerState, moved, ms });
    assert_eq!(found(&adam, &plain, 2, room), [Remedy { offload, ..Remedy::as_written(room) }]);
    let has_any = |blueprint: &Blueprint, program: &Program, room| {
        found(blueprint, program, 2, room)
            .iter()
            .any(|remedy| remedy.offload.is_some_and(|it| it.what == Offload::OptimizerState))
    };
    assert!(!has_any(&adam, &plain, room - 1));
    // Nothing is said of what is done already, or what there is not, or what has no pieces.
    assert!(!has_any(&offloads, &program, room - 1));
    let others = [
        Optimizer::Sgd(Sgd::DEFAULT),
        Optimizer::AdamW8bit(AdamW8bit::DEFAULT),
        Optimizer::Adafactor(Adafactor::DEFAULT),
    ];
    for optimizer in others {
        let other = wide(optimizer, Checkpoint::None);
        let plain = other.training(Precision::F32).unwrap().unwrap();
        assert!(!has_any(&other, &plain, arena(&plain, 2) - 1), "{optimizer:?}");
    }
}

/// Beside activations that are many, states in host memory alone are not enough, and nothing is without them.
#[test]
fn optimizer_state_in_host_memory_and_something_else() {
    let adam = wide(Optimizer::AdamW(AdamW::DEFAULT), Checkpoint::None);
    let plain = adam.training(Precision::F32).unwrap().unwrap();
    let (offloads, program) = offloading(&adam, Offload::OptimizerState);
    let batch = 1500;
    let room = offloads.training_for(&setting(batch)).unwrap().map(|program| arena(&program, batch)).unwrap() - 1;
    assert!(arena(&program, batch) > room);
    let found = found(&adam, &plain, batch, room);
    let of = |remedy: &Remedy| (remedy.offload.map(|it| it.what), remedy.split.is_some(), remedy.more.is_some());
    let states = Some(Offload::OptimizerState);
    let all: Vec<_> = found.iter().map(of).collect();
    assert_eq!(all, [(states, false, true), (states, true, false)], "{found:?}");
    assert!(found.iter().all(|remedy| remedy.offload.is_some_and(|it| it.moved > 0)));
}

/// Maps of one size, so that the first ones can leave while the others are made.
#[test]
fn activations_in_host_memory() {
    let block = "Conv2d(8, 3, padding = 1) | BatchNorm2d | Tanh | ";
    let mut deep = blueprint(&format!("{}Flatten | Linear(5)", block.repeat(25)), Term::MSE, Checkpoint::None);
    // Of one sample, which nothing splits, without states, and with recomputation said.
    let steps = deep.training.as_mut().unwrap();
    (steps.checkpoint, steps.moments) = (Checkpoint::Cheap, 0);
    let plain = deep.chosen(&setting(1), u64::MAX).unwrap().unwrap();
    let (parked, _) = offloading(&deep, Offload::Activations);
    let program = parked.chosen(&setting(1), u64::MAX).unwrap().unwrap();
    let room = arena(&program, 1);
    assert!(room < arena(&plain, 1));
    let budget = budget_at(&tables(&program).as_tables().with_workspaces(WORKSPACES), 1, Precision::F32).unwrap();
    let offload = Offloaded { what: Offload::Activations, moved: 2 * budget.fetched, ms: budget.bus_ms() };
    let expected = Remedy { offload: Some(offload), ..Remedy::as_written(room) };
    assert!(offload.moved > 0);
    assert_eq!(found(&deep, &plain, 1, room), [expected]);
    assert_eq!(found(&deep, &plain, 1, room - 1), []);
}

/// Both, where neither is enough alone; and where one of them is written already.
#[test]
fn all_in_host_memory() {
    let block = "Conv2d(8, 3, padding = 1) | BatchNorm2d | Tanh | ";
    let mut deep = blueprint(&format!("{}Flatten | Linear(5)", block.repeat(25)), Term::MSE, Checkpoint::None);
    let steps = deep.training.as_mut().unwrap();
    (steps.checkpoint, steps.moments) = (Checkpoint::Cheap, 2);
    let of = |what| {
        let (blueprint, _) = offloading(&deep, what);
        let program = blueprint.chosen(&setting(1), u64::MAX).unwrap().unwrap();
        let budget = budget_at(&tables(&program).as_tables().with_workspaces(WORKSPACES), 1, Precision::F32).unwrap();
        let offload = Some(Offloaded { what, moved: 2 * budget.fetched, ms: budget.bus_ms() });
        (Remedy { offload, ..Remedy::as_written(budget[Line::Arena]) }, blueprint, program)
    };
    let [none, states, parked, all] =
        [Offload::None, Offload::OptimizerState, Offload::Activations, Offload::All].map(of);
    let room = all.0.arena;
    assert!(room < states.0.arena.min(parked.0.arena));
    for (_, blueprint, program) in [&none, &states, &parked] {
        assert_eq!(found(blueprint, program, 1, room), [all.0]);
        assert_eq!(found(blueprint, program, 1, room - 1), []);
    }
    assert_eq!(found(&all.1, &all.2, 1, room - 1), []);
    // What is enough alone takes the bus for less time, and of both that are enough the cheaper one comes first.
    let [more, less] = if states.0.arena > parked.0.arena { [&states.0, &parked.0] } else { [&parked.0, &states.0] };
    assert_eq!(found(&none.1, &none.2, 1, less.arena), [*less]);
    let mut both = [*more, *less];
    both.sort_by_key(|remedy| remedy.offload.map(|it| (it.ms, it.moved)));
    assert_eq!(found(&none.1, &none.2, 1, more.arena), both);
    // Optimizers that have no pieces.
    let mut whole = none.1.clone();
    whole.training.as_mut().unwrap().moments = Optimizer::AdamW8bit(AdamW8bit::DEFAULT).moments();
    let plain = whole.chosen(&setting(1), u64::MAX).unwrap().unwrap();
    assert_eq!(found(&whole, &plain, 1, arena(&plain, 1) * 2 / 3), []);
}

/// Of a batch in parts the step in mixed precision is another program, which adds gradients up in f32: it was planned as if it were written.
#[test]
fn mixed_precision_of_a_batch_in_parts() {
    let mut split = blueprint(MAPS, Term::MSE, Checkpoint::None);
    split.training.as_mut().unwrap().descent.micro_batches = 2;
    let plain = split.training_for(&setting(24)).unwrap().unwrap();
    let mixed = Sizes { precision: Precision::Mixed(Half::Bf16), ..setting(24) };
    let program = split.training_for(&mixed).unwrap().unwrap();
    assert!(program.descent.wide_sums && !plain.descent.wide_sums);
    let room =
        budget_at(&tables(&program).as_tables().with_workspaces(WORKSPACES), 24, mixed.precision).unwrap()[Line::Arena];
    assert!(room < arena(&plain, 24));
    let found = |blueprint: &Blueprint, program: &Program, setting: &Sizes, room| {
        blueprint.remedies(program, setting, room).mixed
    };
    assert_eq!(found(&split, &plain, &setting(24), room), Some(room));
    assert_eq!(found(&split, &plain, &setting(24), room - 1), None);
    // Of a whole batch it is the same program, which the compiler plans, and one in mixed precision is in that already.
    let whole = blueprint(MAPS, Term::MSE, Checkpoint::None);
    let step = whole.training_for(&setting(24)).unwrap().unwrap();
    assert_eq!(found(&whole, &step, &setting(24), arena(&step, 24) - 1), None);
    assert_eq!(found(&split, &program, &mixed, room - 1), None);
}

/// `InplaceAbn` where its two layers are written, exactly as if it were.
#[test]
fn in_place() {
    let block = |norm: &str| format!("Conv2d(16, 3, padding = 1) | {norm} | ").repeat(4) + "Flatten | Linear(3)";
    for (slope, slopes) in [("", Slopes::Default), ("(0.2)", Slopes::Written)] {
        let two = blueprint(&block(&format!("BatchNorm2d | LeakyRelu{slope}")), Term::MSE, Checkpoint::None);
        let param = if slope.is_empty() { "" } else { "(activation_param = 0.2)" };
        let one = blueprint(&block(&format!("InplaceAbn{param}")), Term::MSE, Checkpoint::None);
        let [plain, other] = [&two, &one].map(|it| it.training(Precision::F32).unwrap().unwrap());
        let room = arena(&other, 24);
        assert!(room < arena(&plain, 24) * 7 / 8);
        let expected = Remedy { in_place: Some(slopes), ..Remedy::as_written(room) };
        assert_eq!(found(&two, &plain, 24, room)[0], expected);
        assert_eq!(found(&two, &plain, 24, room - 1).first().and_then(|remedy| remedy.in_place), None);
    }
    // A rectifier cannot be undone, nor can what is nearly one; what something else reads as well stays; vectors have no such layer.
    let others = ["BatchNorm2d | Relu", "BatchNorm2d | LeakyRelu(0.0001)", "BatchNorm2d | Tanh", "InplaceAbn"];
    for text in others {
        let other = blueprint(&block(text), Term::MSE, Checkpoint::None);
        let plain = other.training(Precision::F32).unwrap().unwrap();
        let found = found(&other, &plain, 24, arena(&plain, 24) - 1);
        assert!(found.iter().all(|remedy| remedy.in_place.is_none()), "{text}: {found:?}");
    }
}

/// A value between the two layers that something else reads stays.
#[test]
fn what_is_read_between_is_not_in_place() {
    let mut of = |reads: usize| {
        let mut graph = Graph::default();
        let input = graph.input(numbers(&[3, 16, 16])).unwrap();
        let norm = layers(&mut graph, input, "Conv2d(16, 3, padding = 1) | BatchNorm2d");
        let rest = layers(&mut graph, norm, "LeakyRelu | Conv2d(16, 3, padding = 1) | Flatten | Linear(3)");
        let mut outputs = vec![rest];
        let mut loss = vec![Term::MSE];
        match reads {
            0 => {}
            1 => outputs.push(norm),
            _ => loss.push(Term { from: Some(norm), ..Term::of(gpumem_core::program::Measure::Mean) }),
        }
        let steps = Steps {
            loss,
            moments: 1,
            update: Update::Fused,
            checkpoint: Checkpoint::None,
            descent: Descent::PLAIN,
            conv_norm: ConvNorm::Fused,
            ordered_at: None,
        };
        let blueprint = Blueprint { graph, outputs, training: Some(steps), cached: None, parts: Default::default() };
        let plain = blueprint.training(Precision::F32).unwrap().unwrap();
        let found = found(&blueprint, &plain, 24, arena(&plain, 24) - 1);
        found.iter().any(|remedy| remedy.in_place.is_some())
    };
    assert_eq!([0, 1, 2].map(&mut of), [true, false, false]);
}

/// Weights inside `lora` in 8 bits where that is enough, and in 4 where it is not: as if it had been written.
#[test]
fn a_base_in_codes() {
    let of = |base: Option<Coding>| {
        let mut graph = Graph::default();
        let input = graph.input(numbers(&[64])).unwrap();
        let inner = layers(&mut graph, input, &("Linear(500) | Tanh | ".repeat(7) + "Linear(500)"));
        let rows = 0..graph.rows.len();
        let outer = layers(&mut graph, inner, "Linear(100) | Linear(3)");
        let places = graph.adapt(&[Lora { rank: 4, alpha: 8.0, targets: Vec::new(), base, rows }]);
        let (update, checkpoint, descent) = (Update::Fused, Checkpoint::None, Descent::PLAIN);
        let steps = Steps {
            loss: vec![Term::MSE],
            moments: 2,
            update,
            checkpoint,
            descent,
            conv_norm: ConvNorm::Fused,
            ordered_at: None,
        };
        let outputs = vec![places[outer]];
        Blueprint { graph, outputs, training: Some(steps), cached: None, parts: Default::default() }
    };
    let mixed = Precision::Mixed(Half::Bf16);
    let setting = Sizes::new(2, mixed, WORKSPACES);
    let arena = |blueprint: &Blueprint| {
        let program = blueprint.training_for(&setting).unwrap().unwrap();
        budget_at(&tables(&program).as_tables().with_workspaces(WORKSPACES), 2, mixed).unwrap()[Line::Arena]
    };
    let plain = of(None);
    let program = plain.training(mixed).unwrap().unwrap();
    for coding in [Coding::Int8, Coding::Nf4] {
        let room = arena(&of(Some(coding)));
        let expected = Remedy { base: Some(coding), ..Remedy::as_written(room) };
        let all = plain.remedies(&program, &setting, room).planned;
        assert!(all.contains(&Some(expected)), "{coding:?}: {all:?}");
    }
    // A tool that reads the record finds the same alternatives.
    let mut read = Blueprint::decode(&plain.encode()).unwrap();
    assert_eq!(read, plain);
    let beyond = read.graph.rows.len() + 1;
    read.graph.loras[0].end = beyond;
    assert_eq!(Blueprint::decode(&read.encode()), None, "a layer that does not exist");
    // Adapters and what stands outside keep their format.
    let (coded, _) = plain.graph.with_base(Coding::Nf4).unwrap();
    let is_coded = |it: &&gpumem_core::graph::Parameter| it.role == Coding::Nf4.role();
    assert_eq!(coded.parameters.iter().filter(is_coded).count(), 8);
    assert!(coded.parameters.iter().filter(is_coded).all(|it| !it.name.contains("lora_")));
    assert_eq!(coded.trained_parameters().filter(is_coded).count(), 0);
    // In nothing that is written with codes is there anything to say.
    assert_eq!(of(Some(Coding::Int8)).graph.with_base(Coding::Nf4), None);
}
