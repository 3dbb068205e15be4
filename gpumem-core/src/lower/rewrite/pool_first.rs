//! Max pools before rectifiers.

use crate::graph::{Graph, NodeId, Source};
use crate::lower::analysis::readers;
use crate::program::Op;
use crate::program::functions::Function;
use crate::program::ops::{MaxPool, Pointwise};
use alloc::vec::Vec;

/// Moves max pools before rectifiers. `max_pool(relu(x))` is `relu(max_pool(x))`, for neither makes a larger number the smaller one. The map that
/// the rectifier saves is then smaller by the window's size. Gradients are equal, too: if the largest element of a window is cut off, no gradient
/// flows, whichever element holds the maximum.
pub(in crate::lower) fn pool_first(mut graph: Graph, ends: &[NodeId]) -> Graph {
    let readers = readers(&graph);
    let pools: Vec<(NodeId, NodeId)> =
        (0..graph.nodes.len()).filter_map(|id| Some((rectified(&graph, id)?, id))).collect();
    for (rectifier, pool) in pools {
        if readers[rectifier].len() == 1 && !ends.contains(&rectifier) {
            swap(&mut graph, rectifier, pool);
        }
    }
    graph
}

/// Moves `pool` before the rectifier that it reads.
fn swap(graph: &mut Graph, rectifier: NodeId, pool: NodeId) {
    let pooled = graph.nodes[pool].value;
    let [mut first, mut second] = [pool, rectifier].map(|id| graph.nodes[id].clone());
    if let (Source::Op { inputs: read, .. }, Source::Op { inputs, op, .. }) = (&mut first.source, &mut second.source) {
        core::mem::swap(read, inputs);
        if let Op::Pointwise(Pointwise { shape, .. }) = op {
            *shape = pooled.shape;
        }
    }
    (first.value, second.value) = (pooled, pooled);
    (graph.nodes[rectifier], graph.nodes[pool]) = (first, second);
}

/// Returns the rectifier whose output `id` pools to a map that is no larger; `None` if there is none. With dilation a window may miss the whole
/// input, and its maximum, minus infinity, would be rectified.
fn rectified(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let Source::Op { op, inputs, .. } = &graph.nodes[id].source else { return None };
    let is_pool = match op {
        Op::MaxPool(MaxPool { window, .. }) => window.dilation == [1; 2],
        Op::MaxPool3d(MaxPool { window, .. }) => window.dilation == [1; 3],
        _ => false,
    };
    if !is_pool {
        return None;
    }
    let input = inputs[0];
    let [pooled, whole] = [id, input].map(|id| graph.nodes[id].value.shape.elements());
    let is_rectifier =
        |op: &Op| matches!(op, Op::Pointwise(Pointwise { function: Function::Relu | Function::Relu6, .. }));
    let rectifies = matches!(&graph.nodes[input].source, Source::Op { op, .. } if is_rectifier(op));
    (rectifies && pooled <= whole).then_some(input)
}
