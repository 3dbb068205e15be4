//! Rewritings of the graph that save memory and change no number.

use crate::graph::{Graph, NodeId, Source};
use crate::layers::{Layer, MaxPool2d, Relu, Relu6};
use alloc::vec;
use alloc::vec::Vec;

/// Pools before it rectifies: `max_pool(relu(x))` is `relu(max_pool(x))`, for neither makes a larger number the smaller
/// one. What the rectifier keeps is then a window's size smaller. Gradients are equal too: where the largest element of
/// a window is cut off, none flows, whichever of the window's elements has the maximum's place.
pub(super) fn pool_first(mut graph: Graph, output: NodeId) -> Graph {
    let mut readers = vec![0usize; graph.nodes.len()];
    for node in &graph.nodes {
        if let Source::Layer { inputs, .. } = &node.source {
            inputs.iter().for_each(|&input| readers[input] += 1);
        }
    }
    let pools: Vec<(NodeId, NodeId)> =
        (0..graph.nodes.len()).filter_map(|id| Some((rectified(&graph, id)?, id))).collect();
    for (rectifier, pool) in pools {
        if readers[rectifier] != 1 || rectifier == output {
            continue;
        }
        let pooled = graph.nodes[pool].value;
        let [first, second] = [rectifier, pool].map(|id| graph.nodes[id].source.clone());
        let (mut first, mut second) = (second, first);
        if let (Source::Layer { inputs: read, .. }, Source::Layer { inputs, layer, .. }) = (&mut first, &mut second) {
            core::mem::swap(read, inputs);
            match layer {
                Layer::Relu(Relu { shape, .. }) | Layer::Relu6(Relu6 { shape, .. }) => *shape = pooled.shape,
                _ => {}
            }
        }
        graph.nodes[rectifier].source = first;
        graph.nodes[rectifier].value = pooled;
        graph.nodes[pool].source = second;
    }
    graph
}

/// The rectifier whose output `id` pools to a map that is no larger. With dilation a window may miss the whole input, and
/// its maximum, minus infinity, would be rectified.
fn rectified(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let Source::Layer { layer: Layer::MaxPool2d(MaxPool2d { dilation: [1, 1], .. }), inputs, .. } =
        &graph.nodes[id].source
    else {
        return None;
    };
    let input = inputs[0];
    let [pooled, whole] = [id, input].map(|id| graph.nodes[id].value.shape.elements());
    let rectifies = pooled <= whole
        && matches!(&graph.nodes[input].source, Source::Layer { layer: Layer::Relu(_) | Layer::Relu6(_), .. });
    rectifies.then_some(input)
}
