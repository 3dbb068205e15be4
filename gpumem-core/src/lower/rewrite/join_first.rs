//! Concatenations before rectifiers.

use crate::graph::{Graph, NodeId, Source};
use crate::lower::analysis::readers;
use crate::program::Op;
use crate::program::functions::Function;
use crate::program::op::Gradient;
use crate::program::ops::Pointwise;
use alloc::vec;
use alloc::vec::Vec;

/// Moves concatenations before rectifiers: `concat(relu(a), relu(b))` is `relu(concat(a, b))`, element by element. The rectifier then reads its
/// output from the concatenation, which another gradient keeps anyway. Before, it kept a map for each of its branches. Rectifiers after
/// normalisations are left alone: they keep no such maps.
pub(in crate::lower) fn join_first(mut graph: Graph, ends: &[NodeId]) -> Graph {
    let readers = readers(&graph);
    for join in 0..graph.nodes.len() {
        let Some(branches) = rectified_branches(&graph, join) else { continue };
        let is_free = |&branch: &NodeId| readers[branch] == [join] && !ends.contains(&branch);
        let is_kept = readers[join].iter().any(|&reader| reads_again(&graph, &readers, reader, join));
        if is_kept && branches.iter().all(is_free) {
            join_and_rectify(&mut graph, join, &branches);
        }
    }
    graph
}

/// Returns the branches of a concatenation, if all of them go through equal rectifiers; `None` otherwise.
fn rectified_branches(graph: &Graph, join: NodeId) -> Option<Vec<NodeId>> {
    let Source::Op { op: Op::Concat(_), inputs, .. } = &graph.nodes[join].source else { return None };
    let rectifier = |branch: NodeId| match &graph.nodes[branch].source {
        Source::Op { op: Op::Pointwise(Pointwise { function, .. }), inputs, .. } => {
            let is_normalised =
                matches!(&graph.nodes[inputs[0]].source, Source::Op { op: Op::BatchNorm(norm), .. } if !norm.eval);
            Some(*function).filter(|it| matches!(it, Function::Relu | Function::Relu6) && !is_normalised)
        }
        _ => None,
    };
    let first = rectifier(*inputs.first()?)?;
    let is_alike = |&branch: &NodeId| {
        rectifier(branch) == Some(first) && graph.nodes[branch].value.batched == graph.nodes[join].value.batched
    };
    inputs.iter().all(is_alike).then(|| inputs.clone())
}

/// True if the gradient of an operation reads a value as an input, directly or through views.
fn reads_again(graph: &Graph, readers: &[Vec<NodeId>], reader: NodeId, value: NodeId) -> bool {
    match &graph.nodes[reader].source {
        Source::View(_) => readers[reader].iter().any(|&next| reads_again(graph, readers, next, reader)),
        Source::Op { op, inputs, .. } => op.gradients().iter().any(|gradient| match gradient {
            Gradient::Passes(_) => false,
            Gradient::Computed { of, .. } => {
                let reads = |index: usize| of.iter().any(|(_, reads)| reads.inputs.contains(index));
                (0..inputs.len()).any(|index| inputs[index] == value && reads(index))
            }
        }),
        Source::Input | Source::Parameter(_) => false,
    }
}

/// Moves a concatenation to the node of its last branch, and the rectifier after it. No other node comes between the two.
fn join_and_rectify(graph: &mut Graph, join: NodeId, branches: &[NodeId]) {
    let Some(&last) = branches.iter().max() else { return };
    let before: Vec<NodeId> = branches.iter().map(|&branch| graph.nodes[branch].inputs()[0]).collect();
    let [mut joined, mut rectified] = [join, last].map(|id| graph.nodes[id].clone());
    let value = joined.value;
    if let (Source::Op { inputs: read, .. }, Source::Op { inputs, op, .. }) =
        (&mut joined.source, &mut rectified.source)
    {
        (*read, *inputs) = (before, vec![last]);
        if let Op::Pointwise(Pointwise { shape, .. }) = op {
            *shape = value.shape;
        }
    }
    rectified.value = value;
    (graph.nodes[last], graph.nodes[join]) = (joined, rectified);
}
