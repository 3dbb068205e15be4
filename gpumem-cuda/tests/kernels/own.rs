//! Layers that users declare.

use crate::host::CAPABILITY;
use crate::host::harness::graphs::own::OPERATIONS;
use crate::host::harness::graphs::{again, chain, compile, join, layer, numbers};
use crate::{check, check_narrow};
use gpumem_core::Precision;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, lower};
use gpumem_core::operation::{Functions, Operations};
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_cuda::operations::LaunchContext;
use gpumem_cuda::program_calls::steps;

/// Every operator, and derivatives of the input, of the output and of neither, in place and not, written and added.
fn formulas(graph: &mut Graph) -> NodeId {
    let input = graph.input(numbers(&[7, 13])).unwrap();
    let x = layer(graph, input, "Tanh");
    let ends = ["Everything | Swish | Squash", "Squash", "Swish"].map(|layers| chain(graph, x, layers));
    join(graph, &ends, "Concat")
}

/// Kernels of the user's, with shared parameters and without a gradient of the input.
fn functions(graph: &mut Graph) -> NodeId {
    let input = graph.input(numbers(&[5, 6])).unwrap();
    let first = layer(graph, input, "Fold");
    let second = chain(graph, first, "Tanh | Fold");
    let row = graph.rows.iter().position(|row| row.kind == "Fold").unwrap();
    let third = again(graph, second, "Fold", row);
    join(graph, &[first, third], "Concat")
}

/// Without a CUDA file nothing is launched, and the error says what to add.
#[test]
fn functions_for_another_device_only() {
    static WITHOUT: Operations =
        Operations { own: &[Functions { name: "Fold", cpu: OPERATIONS.own[0].cpu, cuda: None }], used: &[] };
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[5, 6])).unwrap();
    let output = layer(&mut graph, input, "Fold");
    let placed = compile(&lower(&graph, &[output], &Options::default()).unwrap(), 3);
    let setting = LaunchContext {
        rank: 0,
        batch: 3,
        precision: Precision::F32,
        optimizer: Optimizer::Sgd(Sgd::DEFAULT),
        capability: CAPABILITY,
        multiprocessors: 132,
        tf32: false,
        deterministic: false,
        library: false,
        cudnn: false,
        operations: &WITHOUT,
    };
    let expected = "CUDA: operation `Fold` is declared without `cuda`, so it counts in budgets, but nothing computes it here; add \
                    `cuda: \"kernels.cu\"` to its `operation!`";
    assert_eq!(steps(&placed, setting).unwrap_err().to_string(), expected);
}

#[test]
fn formulas_of_one_number() {
    check("formulas", 3, formulas);
}

#[test]
fn formulas_in_sixteen_bits() {
    check_narrow("formulas", 3, formulas);
}

#[test]
fn kernels_of_the_users() {
    check("functions", 3, functions);
}

#[test]
fn kernels_of_the_users_in_sixteen_bits() {
    check_narrow("functions", 3, functions);
}
