//! What `InplaceAbn` makes of a network that is written with `BatchNorm2d` and `LeakyRelu`: the same mathematics, with one map kept of two.

use super::{Blueprint, Steps, Term};
use crate::graph::{Graph, NodeId, Source};
use crate::memory::refusal::Slopes;
use crate::program::Op;
use crate::program::function::Function;
use crate::program::ops::{BatchNorm, InplaceNorm, Pointwise};
use alloc::vec;
use alloc::vec::Vec;

/// A normalisation, the activation behind it, which alone reads it, and both as one.
struct Pair {
    norm: NodeId,
    activation: NodeId,
    op: InplaceNorm,
}

/// The pair that an activation is the end of, in a network in which nodes have so many readers.
fn pair(graph: &Graph, readers: &[usize], activation: NodeId) -> Option<Pair> {
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
    (is_map && readers[norm] == 1).then_some(Pair { norm, activation, op })
}

impl Blueprint {
    /// The network with `InplaceAbn` for each `BatchNorm2d` that nothing but a `LeakyRelu` reads. Nothing where there is none.
    pub(super) fn activated_in_place(&self) -> Option<(Blueprint, Slopes)> {
        let graph = &self.graph;
        let mut readers = vec![0usize; graph.nodes.len()];
        let inputs = graph.nodes.iter().flat_map(|node| node.inputs());
        inputs.copied().chain(self.ends()).chain(self.ends_of_parts()).for_each(|node| readers[node] += 1);
        let pairs: Vec<Pair> =
            (0..graph.nodes.len()).filter_map(|activation| pair(graph, &readers, activation)).collect();
        let default = Function::LeakyRelu.row().arguments.first().map(|argument| argument.default);
        let is_default = pairs.iter().all(|pair| Some(pair.op.slope) == default);
        let mut other = self.clone();
        // Whoever read an activation reads what is there in its place. Nobody reads the activation any more, so that it is not run.
        let mut places: Vec<NodeId> = (0..graph.nodes.len()).collect();
        for Pair { norm, activation, op } in pairs.iter() {
            places[*activation] = *norm;
            if let Source::Op { op: of, .. } = &mut other.graph.nodes[*norm].source {
                *of = op.clone().into();
            }
        }
        for node in &mut other.graph.nodes {
            node.renumber(&places);
        }
        other.move_ends(&places);
        (!pairs.is_empty()).then_some((other, if is_default { Slopes::Default } else { Slopes::Written }))
    }

    /// The values that are read when the network has run: its outputs, and what the loss measures by name.
    pub(super) fn ends(&self) -> Vec<NodeId> {
        [self.outputs.clone(), self.training.as_ref().map(measured).unwrap_or_default()].concat()
    }

    /// The values that the losses of all steps name.
    fn ends_of_parts(&self) -> Vec<NodeId> {
        self.parts.all.iter().flat_map(|part| measured(&part.steps)).collect()
    }

    /// Reads those from nodes that took their places.
    pub(super) fn move_ends(&mut self, places: &[NodeId]) {
        let parts = self.parts.all.iter_mut().map(|part| &mut part.steps);
        let terms = self.training.iter_mut().chain(parts).flat_map(|steps| &mut steps.loss);
        let measured = terms.flat_map(Term::nodes_mut);
        self.outputs.iter_mut().chain(measured).for_each(|node| *node = places[*node]);
    }
}

/// The values that a loss names.
fn measured(steps: &Steps) -> Vec<NodeId> {
    steps.loss.iter().flat_map(Term::nodes).collect()
}
