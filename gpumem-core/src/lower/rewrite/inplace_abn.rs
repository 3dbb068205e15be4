//! `InplaceAbn` in place of `BatchNorm2d` and `LeakyRelu`: equal mathematics, with one saved map instead of two.

use crate::graph::{Graph, NodeId, Source};
use crate::lower::analysis::readers;
use crate::memory::refusal::Slopes;
use crate::program::Op;
use crate::program::functions::Function;
use crate::program::ops::{BatchNorm, InplaceNorm, Pointwise};
use alloc::vec::Vec;

/// A normalisation, the activation that alone reads it, and the operation that replaces both.
struct Pair {
    norm: NodeId,
    activation: NodeId,
    op: InplaceNorm,
}

/// Returns the pair that ends with an activation; `None` if there is none. `is_alone` is true for a value that is read once.
fn pair(graph: &Graph, is_alone: impl Fn(NodeId) -> bool, activation: NodeId) -> Option<Pair> {
    let op = |node: NodeId| match &graph.nodes[node].source {
        Source::Op { op, inputs, .. } => Some((op, inputs.as_slice())),
        _ => None,
    };
    let (Op::Pointwise(Pointwise { function: Function::LeakyRelu, arguments, .. }), &[norm]) = op(activation)? else {
        return None;
    };
    let slope = arguments.first().copied().filter(|&slope| slope >= InplaceNorm::EXACT_FROM)?;
    let (Op::BatchNorm(of), _) = op(norm)? else { return None };
    let BatchNorm { channels, size, eps, momentum, affine, eval: false, .. } = *of else { return None };
    let is_map = graph.rows.get(graph.nodes[norm].row).is_some_and(|row| row.kind == "BatchNorm2d");
    let op = InplaceNorm { channels, size, eps, momentum, affine, slope };
    (is_map && is_alone(norm)).then_some(Pair { norm, activation, op })
}

/// A graph with `InplaceAbn`, and what has become of the graph before.
pub(in crate::lower) struct InPlace {
    pub(in crate::lower) graph: Graph,
    /// For each node, the one with its value now.
    pub(in crate::lower) places: Vec<NodeId>,
    pub(in crate::lower) slopes: Slopes,
}

/// Returns the graph with `InplaceAbn` for each `BatchNorm2d` that only a `LeakyRelu` reads. `None` if there is no such pair. Values in `ends`
/// are read by others, too.
pub(in crate::lower) fn with_inplace_abn(graph: &Graph, ends: &[NodeId]) -> Option<InPlace> {
    let readers = readers(graph);
    let is_alone = |norm: NodeId| readers[norm].len() == 1 && !ends.contains(&norm);
    let pairs: Vec<Pair> = (0..graph.nodes.len()).filter_map(|activation| pair(graph, is_alone, activation)).collect();
    let default = Function::LeakyRelu.row().arguments.first().map(|argument| argument.default);
    let is_default = pairs.iter().all(|pair| Some(pair.op.slope) == default);
    let mut other = graph.clone();
    // Nodes that read an activation now read the node of its normalisation. Nothing reads the activation any more, so that it does not run.
    let mut places: Vec<NodeId> = (0..graph.nodes.len()).collect();
    for Pair { norm, activation, op } in &pairs {
        places[*activation] = *norm;
        if let Source::Op { op: of, .. } = &mut other.nodes[*norm].source {
            *of = op.clone().into();
        }
    }
    for node in &mut other.nodes {
        node.renumber(&places);
    }
    let slopes = if is_default { Slopes::Default } else { Slopes::Written };
    (!pairs.is_empty()).then_some(InPlace { graph: other, places, slopes })
}
