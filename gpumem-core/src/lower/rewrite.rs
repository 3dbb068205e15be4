//! Rewritings of the graph that save memory and change no number.

use crate::graph::{Graph, NodeId, Source};
use crate::program::Op;
use crate::program::function::Function;
use crate::program::ops::{MaxPool, Pointwise};
use alloc::vec;
use alloc::vec::Vec;

/// Pools before it rectifies: `max_pool(relu(x))` is `relu(max_pool(x))`, for neither makes a larger number the smaller
/// one. What the rectifier keeps is then a window's size smaller. Gradients are equal too: where the largest element of
/// a window is cut off, none flows, whichever of the window's elements has the maximum's place.
pub(super) fn pool_first(mut graph: Graph, ends: &[NodeId]) -> Graph {
    let mut readers = vec![0usize; graph.nodes.len()];
    for node in &graph.nodes {
        node.inputs().iter().for_each(|&input| readers[input] += 1);
    }
    let pools: Vec<(NodeId, NodeId)> =
        (0..graph.nodes.len()).filter_map(|id| Some((rectified(&graph, id)?, id))).collect();
    for (rectifier, pool) in pools {
        if readers[rectifier] == 1 && !ends.contains(&rectifier) {
            swap(&mut graph, rectifier, pool);
        }
    }
    graph
}

/// Lets `pool` come before the rectifier that it reads.
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

/// The rectifier whose output `id` pools to a map that is no larger. With dilation a window may miss the whole input, and
/// its maximum, minus infinity, would be rectified.
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
