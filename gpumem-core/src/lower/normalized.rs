//! Convolutions of one pixel that are one with the normalisations behind them: see [`NormalizedConvolution`].
//!
//! Neither the output of the convolution nor a gradient of it is ever there, so that of four maps around a normalisation in front of a sum two
//! are left, and those are passed over less often. What a step computes is the same but for rounding: the variance is that of a quadratic
//! form of sums over the batch instead of a sum of its own. Where that form cancels, backends sum over the output, which they compute again: that
//! takes time, and after a normalisation it is rare.

use super::recompute::Draft;
use crate::graph::{Graph, NodeId, Source};
use crate::program::function::Function;
use crate::program::ops::{NormalizedConvolution, Pointwise, Sum};
use crate::program::{Op, Operand, Operation, Slot};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Makes one of each convolution of one pixel and the normalisation that alone reads it, in a network whose `ends` others need, where they
/// [can be one](NormalizedConvolution::new), what comes in is normalised, and only sums read what comes out: an activation behind a normalisation
/// keeps nothing as it is.
pub fn with_normalized_convolutions(graph: &Graph, ends: &[NodeId]) -> Graph {
    let mut graph = graph.clone();
    let mut readers = vec![Vec::new(); graph.nodes.len()];
    for (id, node) in graph.nodes.iter().enumerate() {
        node.inputs().iter().for_each(|&input| readers[input].push(id));
    }
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

/// Adds what was made last in front, which is where the sum goes if it can: the pass that makes it may then make the sum.
fn last_first(sum: &mut Source) {
    if let Source::Op { op: Op::Sum(Sum { branches: 2, .. }), inputs, .. } = sum {
        inputs.sort_unstable_by_key(|&input| Reverse(input));
    }
}

/// Whether operation `at` takes a gradient through a rectifier to the next one, that of a convolution that is one with its normalisation: such a
/// rectifier as backends take into the pass of that.
pub(in crate::lower) fn hands_on(operations: &[Operation], at: usize) -> bool {
    let (Some(behind), Some(operation)) = (operations.get(at), operations.get(at + 1)) else { return false };
    let is_rectifier =
        matches!(behind.backward(), Some(Op::Pointwise(Pointwise { function: Function::Relu | Function::Relu6, .. })));
    let handed = behind.written(Slot::InputGradient(0)).filter(|_| is_rectifier && !behind.accumulate);
    let takes = matches!(operation.backward(), Some(Op::NormalizedConvolution(_)));
    takes && handed.is_some() && handed == operation.read(Slot::Gradient)
}

/// Has scratch memory of such convolutions there from the rectifier on: sums are taken in the pass that takes the gradient through that, and lie
/// where nothing is that it reads.
pub(super) fn share_scratch(draft: &mut Draft) {
    for at in 0..draft.operations.len() {
        if hands_on(&draft.operations, at) {
            let tensor = draft.operations[at + 1].written(Slot::Workspace);
            draft.operations[at].writes.extend(tensor.map(|tensor| Operand { slot: Slot::Workspace, tensor }));
        }
    }
}

/// The convolution in front of a normalisation, and both as one.
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

/// Which values come out of a normalisation, through nothing that moves them far from mean 0 and variance 1. Nodes read those before them.
fn normalised(graph: &Graph) -> Vec<bool> {
    let mut all: Vec<bool> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let is_it = |input: &NodeId| all.get(*input).is_some_and(|&is_it| is_it);
        all.push(match &node.source {
            Source::Op { op, inputs, .. } => match op {
                // Running statistics are not those of what comes in.
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

/// Whether a function is an activation, whose values are about as large as what it is given.
fn is_moderate(function: Function) -> bool {
    use Function::*;
    matches!(
        function,
        Relu | Relu6 | LeakyRelu | Elu | Celu | Selu | Silu | Hardswish | Gelu | GeluTanh | QuickGelu | Mish | Tanh
    ) || matches!(function, EluInPlace | CeluInPlace | SeluInPlace)
}
