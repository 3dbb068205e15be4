//! Rewritings of the graph that save memory and change no number.

use crate::graph::{Graph, NodeId, Source};
use crate::lower::analysis::readers;
use crate::program::Op;
use crate::program::functions::Function;
use crate::program::op::Gradient;
use crate::program::ops::{MaxPool, Pointwise, Product, Recurrence, WholeRecurrence};
use alloc::vec;
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

/// Replaces each operation by its form without training, in which `eval` changes nothing.
pub(in crate::lower) fn without_training(graph: &mut Graph) {
    for node in &mut graph.nodes {
        if let Source::Op { op, .. } = &mut node.source {
            op.leave_eval();
        }
    }
}

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
