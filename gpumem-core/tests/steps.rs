//! Several training steps over parts of one network: what each keeps, where it lies, and what it costs.

mod common;

use common::random::{KINDS, network};
use common::{again, layer, plan};
use gpumem_core::graph::{Graph, NodeId, Source, Type};
use gpumem_core::lower::{Blueprint, PartStep, Parts, Steps, Term, tables};
use gpumem_core::memory::budget::{Line, budget_at};
use gpumem_core::memory::layout::channels_last::channels_last;
use gpumem_core::memory::layout::channels_last_weights::Turned;
use gpumem_core::memory::place::{Placed, place, share_lasting};
use gpumem_core::number::{Half, Precision};
use gpumem_core::program::{Class, Measure, Program, Slot};
use gpumem_core::shape::Shape;
use gpumem_core::train::{Clip, Descent};
use gpumem_core::{Checkpoint, ConvNorm, Update};
use std::collections::BTreeSet;

const BATCH: u64 = 4;

fn steps(loss: Vec<Term>, moments: u64, update: Update) -> Steps {
    let (checkpoint, descent, conv_norm) = (Checkpoint::Norms, Descent::PLAIN, ConvNorm::Fused);
    Steps { loss, moments, update, checkpoint, descent, conv_norm, ordered_at: None }
}

fn part(name: &str, trains: &str, steps: Steps) -> PartStep {
    PartStep { name: name.into(), trains: trains.into(), steps }
}

fn blueprint(graph: Graph, outputs: Vec<NodeId>, all: Vec<PartStep>) -> Blueprint {
    let training = all.first().map(|part| part.steps.clone());
    Blueprint { graph, outputs, training, cached: None, parts: Parts { at: 0, all } }
}

fn term(from: NodeId, target: usize) -> Term {
    Term { from: Some(from), target, ..Term::of(Measure::BceWithLogits) }
}

/// A generator of two numbers and a critic of them, each of two linear maps.
fn gan(updates: [Update; 2]) -> Blueprint {
    let mut graph = Graph::default();
    let noise = graph.input(Type::numbers(Shape::new(&[2]))).unwrap();
    let real = graph.input(Type::numbers(Shape::new(&[2]))).unwrap();
    let mut value = layer(&mut graph, noise, "Linear(3)");
    value = layer(&mut graph, value, "Tanh");
    let fake = layer(&mut graph, value, "Linear(2)");
    let first = graph.rows.len();
    value = layer(&mut graph, fake, "Linear(3)");
    value = layer(&mut graph, value, "Tanh");
    let on_fake = layer(&mut graph, value, "Linear(1)");
    value = again(&mut graph, real, "Linear(3)", first);
    value = layer(&mut graph, value, "Tanh");
    let on_real = again(&mut graph, value, "Linear(1)", first + 2);
    for parameter in &mut graph.parameters {
        let part = if parameter.row < first { "generator" } else { "critic" };
        parameter.name = format!("{part}.{}", parameter.name);
    }
    let [critic, generator] = updates;
    let all = vec![
        part("CRITIC", "critic*", steps(vec![term(on_real, 0), term(on_fake, 1)], 1, critic)),
        part("GENERATOR", "generator*", steps(vec![term(on_fake, 0)], 1, generator)),
    ];
    blueprint(graph, vec![fake], all)
}

fn placed(blueprint: &Blueprint, precision: Precision) -> Vec<(Program, Placed)> {
    let of = |step: Blueprint| {
        let program = step.training(precision).unwrap().unwrap();
        let placed = place(&plan(&program, BATCH, precision)).unwrap();
        (program, placed)
    };
    blueprint.steps().into_iter().map(of).collect()
}

fn names(program: &Program, ids: impl Iterator<Item = u32>) -> Vec<String> {
    ids.map(|id| program.tensor(id).name.clone()).collect()
}

/// The lines of each step and the arena, counted by hand: everything is smaller than 256 bytes.
#[test]
fn what_lasts_is_there_once_and_the_rest_as_often_as_the_largest_step_needs() {
    let blueprint = gan([Update::Fused; 2]);
    let all = placed(&blueprint, Precision::F32);
    let lasting = (8 + 8 + 2) * 256;
    // Two inputs and two targets, or the noise and one target, twice.
    for ((program, placed), io) in all.iter().zip([8 * 256, 4 * 256]) {
        assert_eq!(placed.lasting(), lasting);
        let budget = budget_at(&tables(program).as_tables(), BATCH, Precision::F32).unwrap();
        let parameters = 2 * 3 + 3 + 3 * 2 + 2 + 2 * 3 + 3 + 3 + 1;
        assert_eq!([budget[Line::Weights], budget[Line::Optimizer]], [4 * parameters, 4 * parameters]);
        assert_eq!(budget[Line::Arena], lasting + io + budget[Line::Activations]);
    }
}

/// Each step has an update for what it trains, reads what its loss depends on, and has all states of both.
#[test]
fn a_step_updates_what_it_trains() {
    let blueprint = gan([Update::Fused; 2]);
    for (name, other, (program, _)) in [("critic", "GENERATOR", 0), ("generator", "CRITIC", 1)]
        .map(|(name, other, at)| (name, other, placed(&blueprint, Precision::F32).remove(at)))
    {
        let updated = names(&program, program.updated());
        assert_eq!(updated.len(), 4, "{updated:?}");
        assert!(updated.iter().all(|parameter| parameter.starts_with(name)), "{updated:?}");
        let states = names(&program, program.of_class(Class::Moment));
        assert_eq!(states.iter().filter(|state| state.contains(&format!(".{other}.moment0"))).count(), 4);
        let states = names(&program, program.of_class(Class::State));
        assert_eq!(states, ["CRITIC.state", "GENERATOR.state"]);
        assert_eq!(program.tensor(program.state().unwrap()).name, format!("{}.state", name.to_uppercase()));
        let inputs = program.of_class(Class::Input).count();
        assert_eq!(inputs, if name == "critic" { 2 } else { 1 });
        assert!(program.tensors.iter().filter(|tensor| tensor.class == Class::Parameter).all(|it| it.trained));
    }
    // The generator's step keeps nothing for a gradient of the critic's weights, the critic's nothing of the generator.
    let (critic, generator) = (&placed(&blueprint, Precision::F32)[0].0, &placed(&blueprint, Precision::F32)[1].0);
    let gradients = |program: &Program, of: &str| {
        let written = program.operations.iter().filter_map(|operation| {
            let weight =
                operation.read(Slot::Input(1)).filter(|_| operation.written(Slot::InputGradient(1)).is_some())?;
            program.tensor(weight).name.starts_with(of).then_some(())
        });
        written.count()
    };
    assert_eq!([gradients(critic, "generator"), gradients(generator, "critic")], [0, 0]);
}

#[test]
fn what_lasts_has_one_place_in_all_programs() {
    for updates in [[Update::Fused; 2], [Update::Separate, Update::Fused], [Update::Separate; 2]] {
        for precision in [Precision::F32, Precision::Mixed(Half::Bf16)] {
            let blueprint = gan(updates);
            let all = placed(&blueprint, precision);
            assert!(all[0].1.lasts_as(&all[1].1), "{updates:?} {precision:?}");
            let infer = plan(&blueprint.inference().unwrap(), BATCH, precision);
            let mut forward = place(&infer).unwrap();
            assert_eq!(forward.program.of_class(Class::Input).count(), 1);
            let arena = share_lasting(&all[0].1, &mut forward, 0, infer.budget[Line::Arena]).unwrap();
            let ends = forward.offsets.iter().zip(&forward.bytes).map(|(offset, bytes)| offset + bytes);
            assert!(ends.max().unwrap() <= arena);
            let lasting = all[0].1.lasting();
            for (tensor, offset) in forward.program.tensors.iter().zip(&forward.offsets) {
                assert_eq!(tensor.class == Class::Parameter, *offset < lasting, "{tensor:?}");
            }
        }
    }
}

/// Random graphs with random parts: the places agree, every parameter that is named and reached has its update, and no other has one.
#[test]
fn random_parts_of_random_networks_agree() {
    let mut checked = 0;
    for kind in 0..KINDS {
        for seed in 0..4u64 {
            let (graph, output) = network(&[(kind, 1, 2), ((kind * 7 + 3) % KINDS, 0, 1), (12, 0, 0)], true);
            let draws = |step: u64, index: usize| {
                let drawn = seed * 31 + step * 17 + index as u64 * 13 + kind as u64;
                !drawn.is_multiple_of(3)
            };
            let count = graph.parameters.len();
            let trains = |step: u64| {
                let chosen = (0..count).filter(|&index| draws(step, index));
                chosen.map(|index| graph.parameters[index].name.clone()).collect::<Vec<_>>()
            };
            let descent = Descent { clip: Some(Clip::GlobalNorm(1.0)), ..Descent::PLAIN };
            let all = vec![
                part("ONE", &trains(0).join(", "), steps(vec![Term::MSE], 2, Update::Fused)),
                part("TWO", &trains(1).join(", "), Steps { descent, ..steps(vec![Term::MSE], 1, Update::Separate) }),
                part("ALL", "*", steps(vec![Term::MSE], 0, Update::Fused)),
            ];
            let blueprint = blueprint(graph.clone(), vec![output], all);
            let is_lowered = blueprint.steps().iter().all(|step| step.training(Precision::F32).is_ok());
            if !is_lowered {
                continue;
            }
            checked += 1;
            let all = placed(&blueprint, Precision::F32);
            assert!(all.iter().all(|(_, placed)| all[0].1.lasts_as(placed)), "kind {kind} {seed}");
            for ((program, _), part) in all.iter().zip(&blueprint.parts.all) {
                let expected: BTreeSet<String> = (graph.parameters.iter().zip(blueprint.trained_by(part)))
                    .filter(|(_, is_trained)| *is_trained)
                    .map(|(parameter, _)| parameter.name.clone())
                    .collect();
                let updated: BTreeSet<String> = names(program, program.updated()).into_iter().collect();
                assert_eq!(updated, expected, "kind {kind} {seed} {}", part.name);
                assert!(updated.iter().all(|name| part.names(name)));
            }
        }
    }
    assert!(checked > KINDS, "{checked} networks");
}

/// A weight that one step's convolution can have channels last and another's cannot has one order in both.
#[test]
fn orders_of_weights_agree_over_steps() {
    let mut graph = Graph::default();
    let image = graph.input(Type::numbers(Shape::new(&[8, 6, 6]))).unwrap();
    let first = layer(&mut graph, image, "Conv2d(8, 3, padding = 1)");
    let value = layer(&mut graph, first, "Relu");
    let value = layer(&mut graph, value, "Conv2d(8, 3, padding = 1)");
    let value = layer(&mut graph, value, "GlobalAvgPool");
    let value = layer(&mut graph, value, "Flatten");
    let output = layer(&mut graph, value, "Linear(3)");
    let alone = Term { from: Some(first), ..Term::MSE };
    let all = vec![
        part("BODY", "conv2d*", steps(vec![Term::CROSS_ENTROPY], 1, Update::Separate)),
        part("FIRST", "conv2d0*", steps(vec![alone], 1, Update::Separate)),
    ];
    let names: Vec<String> = graph.parameters.iter().map(|parameter| parameter.name.clone()).collect();
    let blueprint = blueprint(graph, vec![output], all);
    let mut turned: Vec<Placed> = placed(&blueprint, Precision::F32).into_iter().map(|(_, placed)| placed).collect();
    channels_last(&mut turned.iter_mut().collect::<Vec<_>>());
    assert!(turned.iter().flat_map(|placed| &placed.program.tensors).any(gpumem_core::program::Tensor::is_turned));
    Turned::new(&turned, Precision::F32).unwrap();
    let order = |placed: &Placed, name: &str| {
        let tensor = placed.program.tensors.iter().find(|tensor| tensor.name == name).unwrap();
        tensor.layout
    };
    let shared = names.iter().find(|name| name.ends_with("weight")).unwrap();
    assert_eq!(order(&turned[0], shared), order(&turned[1], shared));
}

#[test]
fn a_blueprint_of_steps_survives() {
    let blueprint = gan([Update::Separate, Update::Fused]);
    let bytes = blueprint.encode();
    assert_eq!(Blueprint::decode(&bytes), Some(blueprint.clone()));
    for end in 0..bytes.len() {
        // Without its steps it is a network with one.
        let read = Blueprint::decode(&bytes[..end]);
        assert!(read.is_none_or(|read| read.parts.all.is_empty()), "{end} of {} bytes", bytes.len());
    }
    let mut other = blueprint.clone();
    other.parts.at = 2;
    assert_eq!(Blueprint::decode(&other.encode()), None);
    other = blueprint;
    other.parts.all[1].steps.loss[0].from = Some(1000);
    assert_eq!(Blueprint::decode(&other.encode()), None);
}

#[test]
fn a_loss_that_depends_on_nothing_that_its_step_trains_is_refused() {
    let mut blueprint = gan([Update::Fused; 2]);
    let real = blueprint.parts.all[0].steps.loss[0].clone();
    blueprint.parts.all[1].steps.loss = vec![real];
    let error = blueprint.step(1).unwrap().training(Precision::F32).unwrap_err();
    let message =
        "the loss of `GENERATOR` depends on nothing that it trains; name in `trains` what lies before the loss";
    assert_eq!(error.message, message);
    assert!(blueprint.graph.nodes.iter().any(|node| matches!(node.source, Source::Parameter(_))));
}
