//! `InplaceAbn` in place of `BatchNorm2d` and `LeakyRelu`: equal mathematics, with one saved map instead of two.

use crate::graph::{Graph, NodeId, Source};
use crate::lower::{Blueprint, Steps, Term};
use crate::memory::refusal::Slopes;
use crate::program::Op;
use crate::program::function::Function;
use crate::program::ops::{BatchNorm, InplaceNorm, Pointwise};
use alloc::vec;
use alloc::vec::Vec;

/// A normalisation, the activation that alone reads it, and the operation that replaces both.
struct Pair {
    norm: NodeId,
    activation: NodeId,
    op: InplaceNorm,
}

/// Returns the pair that ends with an activation; `None` if there is none. `readers` counts the readers of each node.
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
    /// Returns the network with `InplaceAbn` for each `BatchNorm2d` that only a `LeakyRelu` reads. `None` if there is no such pair.
    pub(in crate::lower) fn activated_in_place(&self) -> Option<(Blueprint, Slopes)> {
        let graph = &self.graph;
        let mut readers = vec![0usize; graph.nodes.len()];
        let inputs = graph.nodes.iter().flat_map(|node| node.inputs());
        inputs.copied().chain(self.ends()).chain(self.ends_of_parts()).for_each(|node| readers[node] += 1);
        let pairs: Vec<Pair> =
            (0..graph.nodes.len()).filter_map(|activation| pair(graph, &readers, activation)).collect();
        let default = Function::LeakyRelu.row().arguments.first().map(|argument| argument.default);
        let is_default = pairs.iter().all(|pair| Some(pair.op.slope) == default);
        let mut other = self.clone();
        // Nodes that read an activation now read the node of its normalisation. Nothing reads the activation any more, so that it does not run.
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

    /// Returns the values that are read after the network has run: its outputs, and those that the loss names.
    pub(in crate::lower) fn ends(&self) -> Vec<NodeId> {
        [self.outputs.clone(), self.training.as_ref().map(measured).unwrap_or_default()].concat()
    }

    /// Returns the values that the losses of all steps name.
    fn ends_of_parts(&self) -> Vec<NodeId> {
        self.parts.all.iter().flat_map(|part| measured(&part.steps)).collect()
    }

    /// Replaces each output, and each value that a loss names, by its entry in `places`.
    pub(in crate::lower) fn move_ends(&mut self, places: &[NodeId]) {
        let parts = self.parts.all.iter_mut().map(|part| &mut part.steps);
        let terms = self.training.iter_mut().chain(parts).flat_map(|steps| &mut steps.loss);
        let measured = terms.flat_map(Term::nodes_mut);
        self.outputs.iter_mut().chain(measured).for_each(|node| *node = places[*node]);
    }
}

/// Returns the values that a loss names.
fn measured(steps: &Steps) -> Vec<NodeId> {
    steps.loss.iter().flat_map(Term::nodes).collect()
}
