//! Recurrent layers that cuDNN computes as a whole.

use crate::graph::{Graph, NodeId, Source};
use crate::lower::analysis::readers;
use crate::program::Op;
use crate::program::ops::{Product, Recurrence, WholeRecurrence};
use alloc::vec::Vec;

/// Fuses a recurrent layer that asks for cuDNN with the linear maps of its input, if nothing else reads those. cuDNN computes all of it, and so
/// takes the input itself, not the mapped one.
pub(in crate::lower) fn whole_recurrences(mut graph: Graph, ends: &[NodeId]) -> Graph {
    let readers = readers(&graph);
    for id in 0..graph.nodes.len() {
        let Some((maps, whole)) = whole_recurrence(&graph, id) else { continue };
        if maps.iter().all(|map| readers[*map].len() == 1 && !ends.contains(map)) {
            graph.nodes[id].source = whole;
        }
    }
    graph
}

/// Returns the maps before a recurrent layer that asks for cuDNN, and the operation that replaces all of it. `None` for any other node.
fn whole_recurrence(graph: &Graph, id: NodeId) -> Option<(Vec<NodeId>, Source)> {
    let Source::Op { op: Op::Recurrence(op), inputs, .. } = &graph.nodes[id].source else { return None };
    let Recurrence { cell, steps, hidden, outputs, directions, bias, cudnn: true } = *op else { return None };
    let (mut maps, mut all) = (Vec::new(), Vec::new());
    let mut arriving = None;
    for of_direction in inputs.chunks(usize::from(op.inputs())) {
        let &mapped = of_direction.first()?;
        let Source::Op { op: Op::Product(map), inputs: of_map, .. } = &graph.nodes[mapped].source else { return None };
        let Product { rows, in_features, out_features, transposed: false, .. } = *map else { return None };
        let (x, weight) = (*of_map.first()?, *of_map.get(1)?);
        let is_its_map = rows == steps && out_features == op.width() && map.bias == bias;
        // Both directions must read one input.
        if !is_its_map || arriving.is_some_and(|first| first != (x, in_features)) {
            return None;
        }
        arriving = Some((x, in_features));
        maps.push(mapped);
        all.push(weight);
        all.extend(&of_direction[1..]);
        all.extend(&of_map[2..]);
    }
    let (x, in_features) = arriving?;
    all.insert(0, x);
    let whole = WholeRecurrence { cell, steps, in_features, hidden, outputs, directions, bias };
    let source = Source::Op { op: whole.into(), inputs: all, buffers: Vec::new(), in_place: false };
    Some((maps, source))
}
