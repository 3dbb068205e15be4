//! Optimizer state or activations in host memory: parameters and states are the same to the bit as with all of it in the arena.
//!
//! Memory that holds no living tensor is filled with NaN, so that what passes through a staging buffer must be fetched each time, and an
//! activation must have come back.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Blueprint, Options, Sizes, Steps, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::on_host;
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::{Action, Class, Leg, Phase, Piece, Program, StateWord};
use gpumem_core::train::optim::{AdamW, Group, Optimizer, RmsProp, Sgd, whole_states};
use gpumem_core::train::{Clip, ConvNorm, Descent, Offload, Schedule};
use gpumem_core::{Checkpoint, Precision};
use gpumem_cpu::Cpu;
use harness::Loaded;
use harness::filled::fill;
use harness::graphs::random::{BATCH, Choice, KINDS, network};
use harness::graphs::{chain, join, numbers};
use proptest::prelude::*;

/// How a step is trained, but for where its states are.
#[derive(Clone, Copy)]
struct Way {
    optimizer: Optimizer,
    update: Update,
    descent: Descent,
    skips_overflow: bool,
    batch: u64,
}

fn step(graph: &Graph, output: NodeId, loss: &[Term], way: &Way, offload: Offload) -> Program {
    let training = Training {
        loss,
        moments: way.optimizer.moments(),
        update: way.update,
        skips_overflow: way.skips_overflow,
        input_gradient: false,
        descent: Descent { offload, ..way.descent },
    };
    lower(graph, &[output], &Options { training: Some(training) }).unwrap()
}

/// Three steps with states here and there.
fn compare(graph: &Graph, output: NodeId, loss: &[Term], way: &Way) -> [Loaded; 2] {
    compare_with(graph, output, loss, way, Offload::OptimizerState)
}

/// Three steps with all of it here and with something there.
fn compare_with(graph: &Graph, output: NodeId, loss: &[Term], way: &Way, offload: Offload) -> [Loaded; 2] {
    compare_programs([Offload::None, offload].map(|offload| step(graph, output, loss, way, offload)), way)
}

/// Three steps of each of two programs, which give the same losses, parameters and states to the bit.
fn compare_programs(programs: [Program; 2], way: &Way) -> [Loaded; 2] {
    let [mut here, mut there] = programs.map(|program| {
        let cpu = Cpu::with_threads(2).unwrap().with_poison(true);
        Loaded::of(&cpu, &program, way.batch, way.optimizer).unwrap()
    });
    fill(&mut here);
    let parts = here.parts(1);
    for (name, words) in here.carried().into_iter().chain(parts.into_iter().flatten()) {
        there.set(&name, &words);
    }
    for loaded in [&mut here, &mut there] {
        let mut state: Vec<u32> = loaded.get("state").unwrap().into_iter().map(f32::to_bits).collect();
        state[StateWord::Seed as usize] = 7;
        loaded.set("state", &state);
    }
    assert_eq!(here.carried(), there.carried());
    let count = way.descent.micro_batches as usize;
    let given: Vec<_> = (0..count).map(|_| here.parts(1).remove(0)).collect();
    let before = here.carried();
    for _ in 0..3 {
        let (expected, found) = (here.step_of(&given).unwrap(), there.step_of(&given).unwrap());
        assert_eq!(expected.to_bits(), found.to_bits());
        assert!(here.carried() == there.carried(), "{:?}", way.optimizer);
    }
    assert!(before != here.carried());
    assert_eq!(here.evaluate().unwrap().to_bits(), there.evaluate().unwrap().to_bits());
    [here, there]
}

fn network_of_all() -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[2, 7, 5])).unwrap();
    let output = chain(
        &mut graph,
        input,
        "Conv2d(3, 3) | BatchNorm2d | Tanh | Flatten | Linear(9) | LayerNorm | Dropout(0.5) | Linear(4)",
    );
    (graph, output)
}

/// Every optimizer that treats each element by itself, with all its states.
fn optimizers() -> impl Iterator<Item = Optimizer> {
    let others = [
        Optimizer::Sgd(Sgd { lr: 0.1, momentum: 0.9, nesterov: true, ..Sgd::DEFAULT }),
        Optimizer::RmsProp(RmsProp { momentum: 0.9, centered: true, ..RmsProp::DEFAULT }),
        Optimizer::AdamW(AdamW {
            groups: &[Group { paths: "**.bias", lr_factor: Some(0.5), weight_decay: Some(0.0), ..Group::DEFAULT }],
            ..AdamW::DEFAULT
        }),
    ];
    let all = Optimizer::DEFAULTS.iter().copied().chain(others);
    all.filter(|optimizer| !whole_states(optimizer.moments()).1)
}

#[test]
fn steps_are_the_same_to_the_bit() {
    let (graph, output) = network_of_all();
    for optimizer in optimizers() {
        for clip in [None, Some(Clip::GlobalNorm(0.01)), Some(Clip::Value(0.001))] {
            for (update, micro_batches) in [(Update::Fused, 1), (Update::Separate, 1), (Update::Separate, 2)] {
                for skips_overflow in [false, true] {
                    let schedule = Schedule::named("Cosine", &[1.0, 5.0, 0.0]).unwrap();
                    let descent = Descent { clip, micro_batches, schedule, ..Descent::PLAIN };
                    let way = Way { optimizer, update, descent, skips_overflow, batch: 4 };
                    compare(&graph, output, &[Term::MSE], &way);
                }
            }
        }
    }
}

/// Parameters of several pieces, the last of which is smaller, and more of them than there are buffers.
#[test]
fn large_parameters_pass_in_pieces() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[700])).unwrap();
    let output = chain(&mut graph, input, "Linear(3100) | Tanh | Linear(1000) | Linear(3)");
    for optimizer in [Optimizer::AdamW(AdamW::DEFAULT), Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::DEFAULT })] {
        let way = Way { optimizer, update: Update::Fused, descent: Descent::PLAIN, skips_overflow: false, batch: 2 };
        let [here, there] = compare(&graph, output, &[Term::MSE], &way);
        let fetches = |loaded: &Loaded| {
            let all = loaded.train.program.operations.iter();
            all.filter(|operation| matches!(operation.action, Action::Fetch(_))).count()
        };
        // Three weights and three biases: of 2 170 000, 3 100 000 and 3000 elements.
        assert_eq!((fetches(&here), fetches(&there)), (0, 3 + 3 + 1 + 3));
        let states = here.budget[Line::Optimizer];
        assert_eq!((there.budget[Line::Optimizer], there.budget.fetched), (0, states));
        assert!(there.budget.host >= states && there.train.host() == there.budget.host);
        let staging = Piece::BUFFERS as u64 * optimizer.moments() * Piece::MOST * 4;
        assert!(there.budget[Line::Arena] <= here.budget[Line::Arena] - states + staging);
        for (tensor, &place) in there.train.program.tensors.iter().zip(&there.train.offsets) {
            assert_eq!(on_host(place).is_some(), tensor.class == Class::Moment, "{}", tensor.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_networks(choices in prop::collection::vec((0..KINDS, 0usize..20, 0usize..20), 1..16)) {
        let choices: Vec<Choice> = choices;
        let (graph, output) = network(&choices, false);
        let optimizer = Optimizer::AdamW(AdamW::DEFAULT);
        let way = Way { optimizer, update: Update::Fused, descent: Descent::PLAIN, skips_overflow: false, batch: BATCH };
        let on = |offload| {
            let cpu = Cpu::with_threads(1).unwrap().with_poison(true);
            let training = Training {
                loss: &[Term::CROSS_ENTROPY],
                moments: optimizer.moments(),
                update: way.update,
                skips_overflow: false,
                input_gradient: false,
                descent: Descent { offload, ..Descent::PLAIN },
            };
            let program = lower(&graph, &[output], &Options { training: Some(training) });
            program.ok().map(|program| Loaded::of(&cpu, &program, BATCH, optimizer).unwrap())
        };
        if on(Offload::None).is_some_and(|loaded| loaded.train.program.of_class(Class::Moment).next().is_some()) {
            compare(&graph, output, &[Term::CROSS_ENTROPY], &way);
        }
    }
}

/// Layers of one size, each of a kind: a sum adds what so many layers before it gave.
fn deep(kinds: &[(usize, usize)]) -> (Graph, NodeId) {
    const LAYERS: [&str; 7] =
        ["Conv2d(8, 3, padding = 1)", "BatchNorm2d", "Tanh", "Relu", "Dropout(0.3)", "Conv2d(8, 1) | Gelu", "Sigmoid"];
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[2, 6, 5])).unwrap();
    let mut values = vec![chain(&mut graph, input, "Conv2d(8, 3, padding = 1) | Tanh")];
    for &(kind, before) in kinds {
        let last = values[values.len() - 1];
        values.push(match LAYERS.get(kind) {
            Some(text) => chain(&mut graph, last, text),
            None => join(&mut graph, &[last, values[values.len() - 1 - before % values.len()]], "Add"),
        });
    }
    let output = chain(&mut graph, values[values.len() - 1], "Flatten | Linear(4)");
    (graph, output)
}

/// Each tensor that left came back, and nothing has its place in between but what the plan puts there.
fn parked(loaded: &Loaded) -> usize {
    let program = &loaded.train.program;
    let legs = |leg| program.operations.iter().filter(|operation| operation.action == Action::Park(leg)).count();
    let all = [Leg::Leave, Leg::Left, Leg::Return, Leg::Returned].map(legs);
    assert_eq!(all, [program.of_class(Class::Host).count(); 4]);
    all[0]
}

#[test]
fn activations_come_back_to_the_bit() {
    let kinds: Vec<(usize, usize)> = (0..70).map(|index| ([0, 1, 3, 5, 2, 7, 4][index % 7], 3 + index % 11)).collect();
    let (graph, output) = deep(&kinds);
    for optimizer in optimizers() {
        for (update, micro_batches, clip) in
            [(Update::Fused, 1, None), (Update::Separate, 1, Some(Clip::GlobalNorm(0.01))), (Update::Separate, 2, None)]
        {
            let descent = Descent { clip, micro_batches, ..Descent::PLAIN };
            let way = Way { optimizer, update, descent, skips_overflow: micro_batches == 2, batch: 4 };
            let [_, all] = compare_with(&graph, output, &[Term::MSE], &way, Offload::All);
            let [here, there] = compare_with(&graph, output, &[Term::MSE], &way, Offload::Activations);
            let count = parked(&there);
            let states = here.budget[Line::Optimizer];
            assert_eq!((parked(&all), all.budget.fetched), (count, there.budget.fetched + states));
            assert!(all.budget.host >= there.budget.host + states && all.train.host() == all.budget.host);
            assert!(count > 1 && parked(&here) == 0, "{count}");
            let samples = 4 / micro_batches;
            assert_eq!(there.budget.fetched, count as u64 * micro_batches * samples * 8 * 6 * 5 * 4);
            assert_eq!(there.budget.host, there.train.host());
            assert!(there.budget.lower_bound < here.budget.lower_bound);
        }
    }
}

/// Random networks in which something is parked, and those in which nothing is.
#[test]
fn random_networks_with_activations_in_host_memory() {
    use proptest::test_runner::TestRunner;
    let layers = prop::collection::vec((0usize..9, 0usize..60), 20..90);
    let found = std::cell::Cell::new((0, 0));
    let config = ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&(layers, 1u64..3), |(kinds, micro_batches)| {
        let (graph, output) = deep(&kinds);
        let descent = Descent { micro_batches, ..Descent::PLAIN };
        let optimizer = Optimizer::AdamW(AdamW::DEFAULT);
        let way = Way { optimizer, update: Update::Fused, descent, skips_overflow: false, batch: 2 };
        let [_, all] = compare_with(&graph, output, &[Term::MSE], &way, Offload::All);
        let [here, there] = compare_with(&graph, output, &[Term::MSE], &way, Offload::Activations);
        let count = parked(&there);
        assert_eq!(parked(&all), count);
        // At this batch the peak may be one of parameters, which stays; it never rises.
        let (less, plain) = (there.budget.lower_bound, here.budget.lower_bound);
        assert!(less <= plain && (count > 0 || less == plain), "{count}: {less}, {plain}");
        let (all, with) = found.get();
        found.set((all + 1, with + usize::from(less < plain)));
        Ok(())
    });
    result.unwrap();
    assert!(found.get().1 * 4 > found.get().0, "{:?}", found.get());
}

/// Returns the steps between which memory decides, with activations in host memory.
fn levels(graph: &Graph, output: NodeId, way: &Way, checkpoint: Checkpoint) -> Vec<Program> {
    let blueprint = Blueprint {
        graph: graph.clone(),
        outputs: vec![output],
        training: Some(Steps {
            loss: vec![Term::MSE],
            moments: way.optimizer.moments(),
            update: way.update,
            checkpoint,
            descent: Descent { offload: Offload::Activations, ..way.descent },
            conv_norm: ConvNorm::Separate,
            ordered_at: None,
        }),
        ..Blueprint::default()
    };
    let workspaces = Workspaces { product: 0, convolution: 0 };
    blueprint.trainings(&Sizes::new(way.batch, Precision::F32, workspaces)).unwrap()
}

/// Every level of random networks whose kept values are in host memory between the passes.
#[test]
fn levels_with_activations_in_host_memory_are_the_same_to_the_bit() {
    use proptest::test_runner::TestRunner;
    let layers = prop::collection::vec((0usize..9, 0usize..60), 20..70);
    // Levels that recompute and park, and those that only recompute.
    let found = std::cell::Cell::new([0, 0]);
    let config = ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&(layers, 1u64..3), |(kinds, micro_batches)| {
        let (graph, output) = deep(&kinds);
        let descent = Descent { micro_batches, ..Descent::PLAIN };
        let optimizer = Optimizer::AdamW(AdamW::DEFAULT);
        let way = Way { optimizer, update: Update::Fused, descent, skips_overflow: false, batch: 2 };
        let here = step(&graph, output, &[Term::MSE], &way, Offload::None);
        for program in levels(&graph, output, &way, Checkpoint::Auto) {
            let is_again = program.operations.iter().any(|operation| operation.phase() == Phase::Again);
            let [_, there] = compare_programs([here.clone(), program], &way);
            let [both, alone] = found.get();
            found.set(match (is_again, parked(&there)) {
                (false, _) => [both, alone],
                (true, 0) => [both, alone + 1],
                (true, _) => [both + 1, alone],
            });
        }
        Ok(())
    });
    result.unwrap();
    let [both, alone] = found.get();
    assert!(both > 16, "{both} levels recompute and park, {alone} only recompute");
}
