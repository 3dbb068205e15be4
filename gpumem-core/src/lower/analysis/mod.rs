//! Questions about a graph that all stages ask: who reads a value, which values have gradients, and what those read.

pub(in crate::lower) mod activation_slopes;

use crate::graph::{Graph, Node, NodeId, RowId, Source, Type};
use crate::lower::options::Training;
use crate::program::op::{Gradient, Reads};
use crate::program::{NO_ROW, Op};
use activation_slopes::Activations;
use alloc::vec;
use alloc::vec::Vec;

/// The parts of a graph node that is an operation.
#[derive(Clone, Copy)]
pub(in crate::lower) struct OpNode<'g> {
    pub(in crate::lower) op: &'g Op,
    /// The values that the operation reads.
    pub(in crate::lower) inputs: &'g [NodeId],
    pub(in crate::lower) buffers: &'g [usize],
    /// True if the user asked for the output to overwrite the input.
    pub(in crate::lower) in_place: bool,
    pub(in crate::lower) row: RowId,
}

/// A graph, with what follows from its ends and from what is trained.
#[derive(Clone)]
pub(in crate::lower) struct Analysis<'g> {
    pub(in crate::lower) graph: &'g Graph,
    /// The values that are read after the forward pass: the outputs, or in training what the loss measures.
    pub(in crate::lower) ends: Vec<NodeId>,
    /// True for each value that the ends depend on.
    live: Vec<bool>,
    /// True for each value that a gradient is computed for.
    needs_gradient: Vec<bool>,
    /// True for each activation whose gradient is computed as part of that of the normalisation before it.
    pub(in crate::lower) merged: Vec<bool>,
    /// The live nodes that read each value, in order.
    pub(in crate::lower) consumers: Vec<Vec<NodeId>>,
}

impl<'g> Analysis<'g> {
    /// Returns the analysis of a graph with these ends. Without `training`, no value has a gradient.
    pub(in crate::lower) fn new(
        graph: &'g Graph,
        ends: Vec<NodeId>,
        training: Option<Training<'_>>,
        activations: Activations,
    ) -> Analysis<'g> {
        let count = graph.nodes.len();
        let mut live = reachable(graph, &ends);
        // Inputs that only the loss reads.
        let terms = training.map_or(&[][..], |training| training.loss);
        terms.iter().filter_map(|term| term.counted).for_each(|input| live[input] = true);
        let mut consumers = vec![Vec::new(); count];
        for (id, node) in graph.nodes.iter().enumerate().filter(|(id, _)| live[*id]) {
            node.inputs().iter().for_each(|&input| consumers[input].push(id));
        }
        let needs_gradient = match training {
            Some(training) => needs_gradient(graph, &ends, &live, training.input_gradient),
            None => vec![false; count],
        };
        let mut analysis = Analysis { graph, ends, live, needs_gradient, merged: vec![false; count], consumers };
        analysis.mark_merged(activations);
        analysis
    }

    /// True if a gradient is computed for one of the ends.
    pub(in crate::lower) fn has_gradient(&self) -> bool {
        self.ends.iter().any(|&end| self.needs_gradient[end])
    }

    pub(in crate::lower) fn node(&self, id: NodeId) -> &'g Node {
        &self.graph.nodes[id]
    }

    /// Returns the operation that computes a node; `None` for inputs, parameters and views.
    pub(in crate::lower) fn op(&self, id: NodeId) -> Option<OpNode<'g>> {
        let node = &self.graph.nodes[id];
        match &node.source {
            Source::Op { op, inputs, buffers, in_place } => {
                Some(OpNode { op, inputs, buffers, in_place: *in_place, row: node.row })
            }
            Source::Input | Source::Parameter(_) | Source::View(_) => None,
        }
    }

    /// Returns the index of the parameter that a node is; `None` for any other node.
    pub(in crate::lower) fn parameter(&self, id: NodeId) -> Option<usize> {
        match self.graph.nodes[id].source {
            Source::Parameter(parameter) => Some(parameter),
            _ => None,
        }
    }

    pub(in crate::lower) fn is_live(&self, id: NodeId) -> bool {
        self.live[id]
    }

    pub(in crate::lower) fn needs_gradient(&self, id: NodeId) -> bool {
        self.needs_gradient[id]
    }

    pub(in crate::lower) fn value(&self, id: NodeId) -> Type {
        self.node(id).value
    }

    /// Returns the row of the layer that made a value, as tensors store it.
    pub(in crate::lower) fn row(&self, id: NodeId) -> u32 {
        match self.node(id).source {
            Source::Input => NO_ROW.into(),
            _ => self.node(id).row as u32,
        }
    }

    /// Returns the only node that reads a value, directly or through views. `None` if there are several, or the value is an end.
    pub(in crate::lower) fn only_reader(&self, id: NodeId) -> Option<NodeId> {
        let &[only] = self.consumers[id].as_slice() else { return None };
        match self.node(only).source {
            _ if self.ends.contains(&id) => None,
            Source::View(_) => self.only_reader(only),
            _ => Some(only),
        }
    }

    /// True if the gradient of another node reads a value, directly or through views.
    pub(in crate::lower) fn is_asked_for(&self, id: NodeId) -> bool {
        self.consumers[id].iter().any(|&reader| {
            let is_view = matches!(self.node(reader).source, Source::View(_));
            self.reads_input(reader, id) || (is_view && self.is_asked_for(reader))
        })
    }

    /// Returns the tensors that the needed gradients of a node's inputs read.
    fn reads(&self, id: NodeId) -> impl Iterator<Item = Reads> + '_ {
        let node = self.op(id).filter(|_| self.live[id] && self.needs_gradient[id] && !self.merged[id]);
        node.into_iter().flat_map(move |node| {
            let gradients = node.op.gradients().into_iter();
            let of = gradients.flat_map(|gradient| match gradient {
                Gradient::Passes(_) => Vec::new(),
                Gradient::Computed { of, .. } => of,
            });
            of.filter(|(input, _)| self.needs_gradient[node.inputs[usize::from(*input)]]).map(|(_, reads)| reads)
        })
    }

    /// True if the backward pass of a node reads its output.
    pub(in crate::lower) fn reads_output(&self, id: NodeId) -> bool {
        self.reads(id).any(|reads| reads.output)
    }

    /// True if the backward pass of a node reads what its forward pass saved.
    pub(in crate::lower) fn reads_saved(&self, id: NodeId) -> bool {
        self.reads(id).any(|reads| reads.saved)
    }

    /// True if the backward pass of a node reads `value` as an input.
    pub(in crate::lower) fn reads_input(&self, id: NodeId, value: NodeId) -> bool {
        let inputs = self.node(id).inputs();
        let mut reads = self.reads(id);
        reads.any(|reads| (0..inputs.len()).any(|input| inputs[input] == value && reads.inputs.contains(input)))
    }
}

/// Returns the nodes that read each value, in order: once for each input of theirs that it is.
pub(in crate::lower) fn readers(graph: &Graph) -> Vec<Vec<NodeId>> {
    let mut readers = vec![Vec::new(); graph.nodes.len()];
    for (id, node) in graph.nodes.iter().enumerate() {
        node.inputs().iter().for_each(|&input| readers[input].push(id));
    }
    readers
}

/// Marks the values that a gradient is computed for. They depend on something trained, and gradients of a loss over `ends` reach them. `live`
/// marks the values that the ends depend on.
pub(in crate::lower) fn needs_gradient(graph: &Graph, ends: &[NodeId], live: &[bool], of_inputs: bool) -> Vec<bool> {
    let mut needs = graph.differentiable(of_inputs);
    let reached = reached_by_gradients(graph, ends, live, &needs);
    needs.iter_mut().zip(reached).for_each(|(needs, reached)| *needs &= reached);
    needs
}

/// Marks the values that gradients of the loss reach. A value that is read only by a `detach`, or by an operation without a gradient, is not one
/// of them.
fn reached_by_gradients(graph: &Graph, ends: &[NodeId], live: &[bool], differentiable: &[bool]) -> Vec<bool> {
    let mut reached = vec![false; graph.nodes.len()];
    ends.iter().for_each(|&end| reached[end] = true);
    for id in (0..reached.len()).rev().filter(|&id| live[id]) {
        if !(reached[id] && differentiable[id]) {
            continue;
        }
        match &graph.nodes[id].source {
            Source::View(input) => reached[*input] = true,
            Source::Op { op, inputs, .. } => {
                let rules = op.gradients();
                rules.iter().flat_map(Gradient::inputs).for_each(|input| reached[inputs[input]] = true);
            }
            Source::Input | Source::Parameter(_) => {}
        }
    }
    reached
}

/// Marks the values that these ends depend on, the ends included. Inputs come before what is computed from them, so that one pass from the last
/// node to the first finds them all.
pub(in crate::lower) fn reachable(graph: &Graph, ends: &[NodeId]) -> Vec<bool> {
    let mut reached = vec![false; graph.nodes.len()];
    ends.iter().for_each(|&end| reached[end] = true);
    for id in (0..graph.nodes.len()).rev() {
        if reached[id] {
            graph.nodes[id].inputs().iter().for_each(|&input| reached[input] = true);
        }
    }
    reached
}
