//! Losses and the gradients that they start from.

use crate::gradients;
use crate::host::harness::graphs::{chain, layer, numbers};
use crate::host::{CAPABILITY, compare_in};
use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::operation::Operations;
use gpumem_core::program::{Action, Measure, Operand, Slot};
use gpumem_cuda::operations::{Context, Setting, calls};

/// Compares a network with these terms of a loss.
fn compare(what: &str, terms: &[Term], precision: Precision, (graph, output): (&Graph, NodeId)) {
    let (training, optimizer) = gradients();
    let training = Training { loss: terms, ..training };
    let (orders, tolerance) = if precision == Precision::F32 { (0..3, 1e-5) } else { (0..1, 1e-2) };
    let what = format!("{what} in {precision:?}");
    let case = (what.as_str(), graph, output, training, 3, optimizer);
    compare_in((precision, CAPABILITY), orders, case, 2, 5, tolerance);
}

/// The output of a small network, and a value before it.
fn network(dims: &[u64], classes: &str) -> (Graph, NodeId, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(dims)).unwrap();
    let hidden = layer(&mut graph, input, "Tanh");
    let output = chain(&mut graph, hidden, classes);
    (graph, hidden, output)
}

const MEASURES: [Measure; 4] = [Measure::CrossEntropy, Measure::Mse, Measure::Mean, Measure::Dot];

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn every_measure_with_a_weight() {
    for measure in MEASURES {
        let term = Term { weight: -0.3, ..Term::of(measure) };
        for precision in [Precision::F32, Precision::F16] {
            let (graph, _, output) = network(&[7], "LayerNorm");
            compare(&format!("{measure:?}"), &[term], precision, (&graph, output));
        }
    }
    for (dims, layers) in [(&[6, 5][..], "LayerNorm"), (&[5, 4, 3], "Sigmoid")] {
        let (graph, _, output) = network(dims, layers);
        compare(layers, &[Term::CROSS_ENTROPY], Precision::F32, (&graph, output));
    }
}

/// The first term writes the loss, the others add to it; so do gradients of what is measured twice.
fn check_pair(first: Measure, second: Measure, precisions: &[Precision]) {
    let (graph, hidden, output) = network(&[5], "Sigmoid");
    let own = Term { weight: 0.5, from: Some(hidden), target: 1, ..Term::of(second) };
    let again = Term { weight: 2.0, target: 2, ..Term::of(second) };
    let what = format!("{first:?} and {second:?}");
    for &precision in precisions {
        compare(&what, &[Term::of(first), own, again], precision, (&graph, output));
    }
}

#[test]
fn terms_with_targets_of_their_own() {
    for [first, second] in [[0, 1], [1, 2], [2, 3], [3, 0]].map(|pair| pair.map(|index: usize| MEASURES[index])) {
        check_pair(first, second, &[Precision::F32, Precision::Bf16]);
    }
}

/// In 32 bits: a loss whose terms cancel shows how each was rounded to 16.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn every_pair_of_measures() {
    let all = |first| MEASURES.iter().for_each(|&second| check_pair(first, second, &[Precision::F32]));
    MEASURES.into_iter().for_each(all);
}

/// What nothing that is trained depends on has a loss, and no gradient.
#[test]
fn a_term_without_a_gradient() {
    let mut graph = Graph::default();
    let [input, other] = [7, 5].map(|features| graph.input(numbers(&[features])).unwrap());
    let output = layer(&mut graph, input, "Linear(5)");
    let (training, optimizer) = gradients();
    for measure in MEASURES {
        let constant = Term { weight: 0.5, from: Some(other), target: 1, ..Term::of(measure) };
        let loss = &[Term::MSE, constant];
        let training = Training { loss, input_gradient: false, ..training };
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let losses = program.operations.iter().filter(|operation| matches!(operation.action, Action::Loss(_)));
        let have: Vec<bool> = losses.map(|loss| loss.written(Slot::InputGradient(0)).is_some()).collect();
        assert_eq!(have, [true, false]);
        let case = ("a constant", &graph, output, training, 3, optimizer);
        compare_in((Precision::F32, CAPABILITY), 0..3, case, 1, 5, 1e-5);
    }
}

#[test]
fn a_gradient_is_not_added_to_the_logits() {
    let (graph, _, output) = network(&[5], "Linear(5)");
    let (training, optimizer) = gradients();
    let mut program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let loss = program.operations.iter_mut().find(|operation| matches!(operation.action, Action::Loss(_))).unwrap();
    let tensor = loss.read(Slot::Input(0)).unwrap();
    assert_eq!(loss.written(Slot::InputGradient(0)), Some(tensor), "the gradient overwrites the logits");
    loss.accumulate = true;
    loss.reads.push(Operand { slot: Slot::InputGradient(0), tensor });
    let placed = crate::host::harness::compile(&program, 3);
    let setting = Setting {
        batch: 3,
        precision: Precision::F32,
        optimizer,
        capability: CAPABILITY,
        tf32: false,
        deterministic: false,
        library: false,
        cudnn: false,
        operations: &Operations::NONE,
    };
    let is_loss = |operation: &&gpumem_core::program::Operation| matches!(operation.action, Action::Loss(_));
    let operation = placed.program.operations.iter().find(is_loss).unwrap();
    let error = calls(&Context { placed: &placed, operation, setting }).unwrap_err();
    assert_eq!(error, Error::Damaged("the loss adds to the gradient that overwrites its logits"));
}
