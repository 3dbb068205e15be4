//! Forward operations that run a second time for the backward pass.

use crate::chains::random;
use crate::channels_last;
use crate::host::harness::compile;
use crate::host::harness::graphs::random::BATCH;
use crate::host::harness::graphs::{chain, join, layer, numbers, tokens};
use crate::host::{CAPABILITY, compare_in, kernels_in};
use crate::{check, check_narrow, gradients};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, lower};
use gpumem_core::program::{Action, Op, Pass};

/// Lets all nodes of a graph but the first and the last be computed again.
fn again(graph: &mut Graph) {
    graph.groups = vec![[1, graph.nodes.len() - 1]];
}

/// A chain of layers that run again.
fn along(dims: &'static [u64], layers: &'static str) -> impl Fn(&mut Graph) -> NodeId + Copy {
    move |graph| {
        let input = graph.input(numbers(dims)).unwrap();
        let output = chain(graph, input, layers);
        again(graph);
        output
    }
}

/// A residual block, its rectifier behind the sum.
fn residual(graph: &mut Graph) -> NodeId {
    let input = graph.input(numbers(&[3, 6, 5])).unwrap();
    let stem = chain(graph, input, "Conv2d(8, 3, padding = 1, bias = false) | BatchNorm2d | Relu");
    let branch = chain(
        graph,
        stem,
        "Conv2d(8, 3, padding = 1, bias = false) | BatchNorm2d | Relu | Conv2d(8, 1, bias = false) | BatchNorm2d",
    );
    let sum = join(graph, &[branch, stem], "Add");
    let output = chain(graph, sum, "Relu | Conv2d(4, 1)");
    again(graph);
    output
}

/// A transformer's block.
fn block(graph: &mut Graph) -> NodeId {
    let words = graph.input(tokens(5)).unwrap();
    let words = layer(graph, words, "Embedding(11, 8)");
    let attention = chain(graph, words, "LayerNorm | CausalSelfAttention(2)");
    let middle = join(graph, &[words, attention], "Add");
    let wide = chain(graph, middle, "LayerNorm | Linear(16) | Gelu | Linear(8) | Dropout(0.1)");
    let sum = join(graph, &[middle, wide], "Add");
    let output = chain(graph, sum, "LayerNorm | Linear(6)");
    again(graph);
    output
}

#[test]
fn layers() {
    check("residual", 3, residual);
    // Shallow: what 16 bits round adds up from layer to layer, recomputed or not.
    check_narrow("normalised", 3, along(&[3, 6, 5], "Conv2d(8, 1, bias = false) | BatchNorm2d | Relu | Conv2d(4, 1)"));
    check("transformer", 2, block);
    check_narrow("rows", 2, along(&[4, 8], "LayerNorm | Linear(16) | Gelu | Linear(6)"));
    check(
        "maxima",
        2,
        along(&[3, 8, 6], "Conv2d(4, 3, bias = false) | BatchNorm2d | Relu | MaxPool2d(2) | Tanh | Conv2d(2, 1)"),
    );
    check("sums of three", 2, |graph| {
        let input = graph.input(numbers(&[12])).unwrap();
        let branches = ["Linear(12)", "Linear(12) | Tanh", "Sigmoid"].map(|text| chain(graph, input, text));
        let sum = join(graph, &branches, "Add");
        let output = chain(graph, sum, "Tanh | Linear(4) | Tanh");
        again(graph);
        output
    });
}

/// What a normalisation saved is read where it runs again: it has neither sums nor running statistics there.
#[test]
fn batch_norm_runs_again_from_what_it_saved() {
    let (training, optimizer) = gradients();
    let mut graph = Graph::default();
    let output = along(&[3, 8, 6], "Conv2d(4, 3, bias = false) | BatchNorm2d | Relu | Conv2d(4, 3) | Tanh")(&mut graph);
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let is_it = |action: &Action| matches!(action, Action::Run { op: Op::BatchNorm(_), pass: Pass::Again });
    let found = program.operations.iter().filter(|operation| is_it(&operation.action)).count();
    assert_eq!(found, 1, "{program}");
    let kernels = kernels_in(&compile(&program, 2), 2, Precision::F32, optimizer);
    let kept = kernels.iter().filter(|kernel| kernel.constants.iter().any(|(name, _)| *name == "KEPT"));
    assert_eq!(kept.map(|kernel| kernel.entry).collect::<Vec<_>>(), ["batch_norm_apply"]);
}

/// Maps whose channels lie side by side.
#[test]
fn channels_side_by_side() {
    channels_last::check_all("again", |graph| {
        let input = graph.input(numbers(&[5, 7, 6])).unwrap();
        let output = chain(graph, input, "Conv2d(16, 1, bias = false) | BatchNorm2d | Relu | Conv2d(3, 1)");
        again(graph);
        output
    });
}

#[test]
fn random_networks() {
    let (training, optimizer) = gradients();
    // Networks in which no gradient is 0 but for rounding: see `chains::random_networks`.
    for seed in [1, 5, 6] {
        let (mut graph, output) = random(seed);
        let nodes = graph.nodes.len();
        graph.groups = vec![[nodes / 8, nodes / 2], [nodes / 2, nodes - 2]];
        let case = ("random", &graph, output, training, BATCH, optimizer);
        compare_in((Precision::F32, CAPABILITY), 0..1, case, 1, 5, 1e-4);
    }
}
