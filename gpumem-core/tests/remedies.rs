//! What is told where a training step does not fit: other programs of it, each of which was planned.
#![cfg(feature = "lower")]

mod chain;
mod common;

use chain::{Chain, TENSORS};
use common::{chain as layers, numbers};
use gpumem_core::cards::RTX_3060;
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Blueprint, Setting, Steps, Term, tables};
use gpumem_core::memory::budget::{Line, Plan, budget_at, plan};
use gpumem_core::memory::refusal::{Aim, Offloaded, Recomputed, Remedies, Split, refusal_with};
use gpumem_core::memory::tables::{Tables, Workspaces};
use gpumem_core::program::Program;
use gpumem_core::program::loss::{LossOptions, Reduction};
use gpumem_core::train::optim::{Adafactor, AdamW, AdamW8bit, Optimizer, Sgd};
use gpumem_core::train::{Descent, Offload};
use gpumem_core::{Checkpoint, Precision, Update};

const WORKSPACES: Workspaces = Workspaces { product: 0, convolution: 0 };

fn blueprint(text: &str, loss: Term, checkpoint: Checkpoint) -> Blueprint {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 16, 16])).unwrap();
    let output = layers(&mut graph, input, text);
    let (update, descent) = (Update::Fused, Descent::PLAIN);
    let training = Some(Steps { loss: vec![loss], moments: 1, update, checkpoint, descent });
    Blueprint { graph, outputs: vec![output], training, cached: None }
}

fn setting(batch: u64) -> Setting {
    Setting::new(batch, Precision::F32, WORKSPACES)
}

fn arena(program: &Program, batch: u64) -> u64 {
    let tables = tables(program).leak().with_workspaces(WORKSPACES);
    budget_at(&tables, batch, Precision::F32).unwrap()[Line::Arena]
}

/// The arena of a step in so many parts.
fn in_parts(blueprint: &Blueprint, parts: u64, batch: u64) -> u64 {
    let mut blueprint = blueprint.clone();
    blueprint.training.as_mut().unwrap().descent.micro_batches = parts;
    arena(&blueprint.training(Precision::F32).unwrap().unwrap(), batch)
}

const MAPS: &str =
    "Conv2d(16, 3, padding = 1) | Tanh | Conv2d(16, 3, padding = 1) | BatchNorm2d | Gelu | Flatten | Linear(3)";

#[test]
fn the_fewest_parts_that_fit() {
    let blueprint = blueprint(MAPS, Term::MSE, Checkpoint::None);
    let plain = blueprint.training(Precision::F32).unwrap().unwrap();
    let remedies = |room| blueprint.remedies(&plain, &setting(24), room);
    assert_eq!(remedies(arena(&plain, 24)), Remedies::UNKNOWN);
    assert_eq!(remedies(u64::MAX), Remedies::UNKNOWN);
    for (parts, fewer) in [(2, 1), (3, 2), (4, 3), (6, 4), (8, 6), (12, 8), (24, 12)] {
        let room = in_parts(&blueprint, parts, 24);
        assert!(in_parts(&blueprint, fewer, 24) > room);
        let split = Split { micro_batches: parts, arena: room, more: None, has_statistics: true };
        assert_eq!(remedies(room).split, Some(split));
    }
    // Beyond that, nothing is left to split, but something to compute again; and then nothing at all.
    let least = in_parts(&blueprint, 24, 24);
    let both = remedies(least - 1).split.unwrap();
    assert!(both.arena < least && both.more.is_some() && remedies(least - 1).recomputed == Recomputed::Unknown);
    assert_eq!(remedies(0), Remedies::UNKNOWN);
}

#[test]
fn recomputation_alone() {
    let text =
        "Conv2d(64, 3, padding = 1) | Tanh | Gelu | Tanh | Gelu | Conv2d(16, 3, padding = 1) | Flatten | Linear(3)";
    let blueprint = blueprint(text, Term::MSE, Checkpoint::None);
    let plain = blueprint.training(Precision::F32).unwrap().unwrap();
    let room = arena(&plain, 24) - 1;
    let Recomputed::Some { arena: with, more } = blueprint.remedies(&plain, &setting(24), room).recomputed else {
        panic!("something can be computed again")
    };
    assert!(with <= room && more[1] > 0);
}

/// Also where the mean divides by what all targets of the batch come to.
#[test]
fn losses_that_divide_by_their_targets_are_split() {
    let options = LossOptions { ignored: Some(0), ..LossOptions::DEFAULT };
    for reduction in [Reduction::Mean, Reduction::Sum] {
        let options = LossOptions { reduction, ..options.clone() };
        let blueprint = blueprint(MAPS, Term { options, ..Term::CROSS_ENTROPY }, Checkpoint::None);
        let plain = blueprint.training(Precision::F32).unwrap().unwrap();
        let remedies = blueprint.remedies(&plain, &setting(24), arena(&plain, 24) - 1);
        assert!(remedies.split.is_some());
    }
}

static CHAIN: Chain = Chain::new(46_000_000, 12_000_000);
static PARAMETERS: [[u64; 4]; 1] = chain::parameters(46_000_000);
static STEP: Tables = chain::step(&CHAIN, &PARAMETERS);

#[test]
fn texts() {
    let plan: Plan<TENSORS> = plan(&STEP, 48, Precision::F32);
    let split = Split { micro_batches: 2, arena: 1 << 30, more: None, has_statistics: false };
    let recomputed = Recomputed::Some { arena: 1 << 30, more: [41, 102] };
    let of = |remedies| {
        let text = refusal_with("Chain", &STEP, &plan, &Aim::at(&[RTX_3060]), remedies).unwrap();
        let text = text.as_str().to_string();
        text.lines().find_map(|line| line.strip_prefix("  fits with     ")).unwrap().to_string()
    };
    let line = |recomputed, split| of(Remedies { recomputed, split, offloaded: None });
    let rest = "batch 34 | precision: Bf16 | precision: Mixed(Bf16)";
    assert_eq!(line(Recomputed::Unknown, None), rest);
    assert_eq!(line(Recomputed::Unknown, Some(split)), format!("micro_batches: 2 | {rest}"));
    let auto = "checkpoint: Auto (+5 % FLOPs, about +11 % time)";
    assert_eq!(line(recomputed, Some(split)), format!("{auto} | micro_batches: 2 | {rest}"));
    let both = Split { more: Some([41, 102]), has_statistics: true, ..split };
    let said = "micro_batches: 2 (BatchNorm looks at each part) and";
    assert_eq!(line(Recomputed::Unknown, Some(both)), format!("{said} {auto} | {rest}"));
    // What does not fit this card is not said.
    let large = Split { arena: 1 << 40, ..split };
    assert_eq!(line(Recomputed::Some { arena: 1 << 40, more: [1, 1] }, Some(large)), rest);
    let offloaded = Offloaded { arena: 1 << 30, moved: 23 << 30, ms: 862, more: None };
    let only = |offloaded| of(Remedies { offloaded: Some(offloaded), ..Remedies::UNKNOWN });
    let bus = "offload: OptimizerState (23.00 GiB over the bus each step, about 0.9 s)";
    assert_eq!(only(offloaded), format!("{bus} | {rest}"));
    assert_eq!(only(Offloaded { more: Some([41, 102]), ..offloaded }), format!("{bus} and {auto} | {rest}"));
    assert_eq!(only(Offloaded { arena: 1 << 40, ..offloaded }), rest);
    let all = Remedies { recomputed, split: Some(split), offloaded: Some(offloaded) };
    assert_eq!(of(all), format!("{auto} | micro_batches: 2 | {bus} | {rest}"));
}

/// Wide layers, whose states are most of a step.
#[test]
fn optimizer_state_in_host_memory() {
    let text = "Flatten | Linear(4000) | Tanh | Linear(2000) | Tanh | Linear(3)";
    let blueprint = |optimizer: Optimizer, checkpoint| {
        let mut blueprint = blueprint(text, Term::MSE, checkpoint);
        blueprint.training.as_mut().unwrap().moments = optimizer.moments();
        blueprint
    };
    let adam = blueprint(Optimizer::AdamW(AdamW::DEFAULT), Checkpoint::None);
    let plain = adam.training(Precision::F32).unwrap().unwrap();
    let mut offloads = adam.clone();
    offloads.training.as_mut().unwrap().descent.offload = Offload::OptimizerState;
    let program = offloads.training(Precision::F32).unwrap().unwrap();
    let room = arena(&program, 2);
    assert!(room < arena(&plain, 2) * 3 / 4);
    let parameters: u64 = adam.graph.parameters.iter().map(|it| it.shape.elements().unwrap()).sum();
    let expected = Offloaded { arena: room, moved: 16 * parameters, ms: 8 * parameters / 25_000_000, more: None };
    let found = adam.remedies(&plain, &setting(2), room);
    assert_eq!(found, Remedies { offloaded: Some(expected), ..Remedies::UNKNOWN });
    assert_eq!(adam.remedies(&plain, &setting(2), room - 1).offloaded, None);
    // Nothing is said of what is done already, or what there is not, or what has no pieces.
    assert_eq!(offloads.remedies(&program, &setting(2), room - 1).offloaded, None);
    let others = [
        Optimizer::Sgd(Sgd::DEFAULT),
        Optimizer::AdamW8bit(AdamW8bit::DEFAULT),
        Optimizer::Adafactor(Adafactor::DEFAULT),
    ];
    for optimizer in others {
        let other = blueprint(optimizer, Checkpoint::None);
        let plain = other.training(Precision::F32).unwrap().unwrap();
        assert_eq!(other.remedies(&plain, &setting(2), arena(&plain, 2) - 1).offloaded, None, "{optimizer:?}");
    }
    // Beside activations that are many, both.
    let ordered = offloads.training_for(&setting(4000)).unwrap().unwrap();
    let room = arena(&ordered, 4000) - 1;
    let both = blueprint(Optimizer::AdamW(AdamW::DEFAULT), Checkpoint::Auto).remedies(&plain, &setting(4000), room);
    assert!(both.offloaded.is_some_and(|it| it.more.is_some() && it.arena <= room), "{both:?}");
}
