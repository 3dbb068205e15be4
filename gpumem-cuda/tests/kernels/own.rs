//! Layers that users declare.

use crate::host::harness::graphs::{again, chain, join, layer, numbers};
use crate::{check, check_narrow};
use gpumem_core::graph::{Graph, NodeId};

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
