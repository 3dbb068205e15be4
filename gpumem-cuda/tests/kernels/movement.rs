//! Gradients on their way from where values are used several times: sums, copies, and the sum over the batch.

use crate::check;
use crate::gradients;
use crate::host::harness::graphs::{chain, join, layer, numbers};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, lower};
use gpumem_core::program::Action;

/// Checks a network, and that its backward pass has these operations.
fn moves(what: &str, batch: u64, actions: &[Action], build: impl Fn(&mut Graph) -> NodeId) {
    let mut graph = Graph::default();
    let output = build(&mut graph);
    let program = lower(&graph, &[output], &Options { training: Some(gradients().0) }).unwrap();
    for action in actions {
        assert!(program.operations.iter().any(|operation| operation.action == *action), "{what}: {program}");
    }
    check(what, batch, build);
}

#[test]
fn gradients_of_values_used_several_times() {
    // 3 * 91 elements are more than a block of threads, and no multiple of anything.
    moves("a value added to itself", 3, &[Action::Copy, Action::Accumulate], |graph| {
        let input = graph.input(numbers(&[7, 13])).unwrap();
        let x = layer(graph, input, "Tanh");
        let y = layer(graph, x, "Sigmoid");
        let sum = join(graph, &[x, y, x], "Add");
        join(graph, &[sum, x], "Add")
    });
}

#[test]
fn gradients_of_values_without_a_batch() {
    moves("positions", 5, &[Action::SumBatch], |graph| {
        let input = graph.input(numbers(&[23, 13])).unwrap();
        let positions = chain(graph, input, "PositionEmbedding(23) | Tanh");
        let sum = join(graph, &[input, positions], "Add");
        let gate = layer(graph, sum, "Sigmoid");
        // The second use of the positions adds to the gradient that the first one left.
        join(graph, &[gate, positions], "Add")
    });
}
