//! Conv norms: 1x1 convolutions that are fused with the normalisations after them. See [`NormalizedConvolution`].
//!
//! Neither the output of the convolution nor its gradient is ever stored. Of four maps around a normalisation before a sum two are left, and
//! those are read and written less often. A step computes equal numbers up to rounding: the variance is a quadratic form of sums over the batch
//! instead of a sum of its own. Where that form cancels, backends sum over the output, which they recompute. That takes time, but after a
//! normalisation it is rare.

use crate::graph::{Graph, NodeId, Source};
use crate::lower::analysis::readers;
use crate::program::Op;
use crate::program::functions::Function;
use crate::program::ops::{NormalizedConvolution, Pointwise, Sum};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Fuses each 1x1 convolution with the normalisation that alone reads it, where both [can be fused](NormalizedConvolution::new). The input of the
/// convolution must be normalised, and only sums may read the output: an activation after a normalisation saves no map anyway. Values in `ends`
/// are read by others and stay.
pub fn with_normalized_convolutions(graph: &Graph, ends: &[NodeId]) -> Graph {
    let mut graph = graph.clone();
    let readers = readers(&graph);
    let normalised = normalised(&graph);
    for norm in 0..graph.nodes.len() {
        if let Some((convolution, source)) = joined(&graph, &normalised, norm)
            && readers[convolution] == [norm]
            && !ends.contains(&convolution)
            && readers[norm]
                .iter()
                .all(|&reader| matches!(graph.nodes[reader].source, Source::Op { op: Op::Sum(_), .. }))
        {
            graph.nodes[norm].source = source;
            readers[norm].iter().for_each(|&sum| last_first(&mut graph.nodes[sum].source));
        }
    }
    graph
}

/// Moves the input of a sum that was computed last to the front, where the sum is written if possible. The pass that computes this input may then
/// compute the sum, too.
fn last_first(sum: &mut Source) {
    if let Source::Op { op: Op::Sum(Sum { branches: 2, .. }), inputs, .. } = sum {
        inputs.sort_unstable_by_key(|&input| Reverse(input));
    }
}

/// Returns the convolution before a normalisation, and the operation that fuses both. `None` if they cannot be fused.
fn joined(graph: &Graph, normalised: &[bool], norm: NodeId) -> Option<(NodeId, Source)> {
    let Source::Op { op: Op::BatchNorm(op), inputs: of_norm, buffers, in_place: false } = &graph.nodes[norm].source
    else {
        return None;
    };
    let &convolution = of_norm.first()?;
    let Source::Op { op: Op::Convolution(before), inputs, in_place: false, .. } = &graph.nodes[convolution].source
    else {
        return None;
    };
    let &[x, weight] = inputs.as_slice() else { return None };
    let is_parameter = matches!(graph.nodes[weight].source, Source::Parameter(_));
    let is_it = is_parameter && graph.nodes[x].value.batched && normalised[x];
    let op = NormalizedConvolution::new(before, op).filter(|_| is_it)?;
    let inputs = [x, weight].into_iter().chain(of_norm[1..].iter().copied()).collect();
    Some((convolution, Source::Op { op: op.into(), inputs, buffers: buffers.clone(), in_place: false }))
}

/// Marks the values that come out of a normalisation and are still near mean 0 and variance 1. Nodes only read earlier nodes.
fn normalised(graph: &Graph) -> Vec<bool> {
    let mut all: Vec<bool> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let is_it = |input: &NodeId| all.get(*input).is_some_and(|&is_it| is_it);
        all.push(match &node.source {
            Source::Op { op, inputs, .. } => match op {
                // Running statistics are not the statistics of the input.
                Op::BatchNorm(norm) => !norm.eval,
                Op::NormalizedConvolution(_) | Op::InplaceNorm(_) => true,
                Op::Pointwise(Pointwise { function, .. }) => is_moderate(*function) && inputs.iter().all(is_it),
                Op::MaxPool(_) | Op::Mask(_) | Op::Rectifier(_) | Op::Sum(_) => inputs.iter().all(is_it),
                _ => false,
            },
            _ => false,
        });
    }
    all
}

/// True if a function is an activation whose outputs are about as large as its inputs.
fn is_moderate(function: Function) -> bool {
    use Function::*;
    matches!(
        function,
        Relu | Relu6 | LeakyRelu | Elu | Celu | Selu | Silu | Hardswish | Gelu | GeluTanh | QuickGelu | Mish | Tanh
    ) || matches!(function, EluInPlace | CeluInPlace | SeluInPlace)
}
