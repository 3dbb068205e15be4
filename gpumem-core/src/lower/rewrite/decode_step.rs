//! Inference with a cache: a network that takes some time steps at a time and keeps what later ones read.
//!
//! The graph of the whole sequence becomes that of a few time steps. Each value has an axis of time steps, or is shared by all of them, and each
//! operation says what it is for some time steps at a time ([`Rule::stepped`](crate::program::op::Rule::stepped)).

use crate::graph::{Graph, Node, NodeId, RowId, Source};
use crate::lower::options::LowerError;
use crate::program::Op;
use crate::program::op::Sequence;
use crate::program::ops::{Positions, Slice};
use crate::shape::{Shape, product};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The lengths of the sequences that a network with a cache takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached {
    /// The most time steps of a sequence.
    pub steps: u64,
    /// The time steps of one forward pass.
    pub chunk: u64,
}

/// Returns the graph for `cached.chunk` time steps at a time. Nodes keep their numbers.
///
/// # Errors
/// Refuses a network that does not map one sequence to another time step by time step.
pub(in crate::lower) fn stepped(graph: &Graph, outputs: &[NodeId], cached: Cached) -> Result<Graph, LowerError> {
    let mut inputs = graph.nodes.iter().filter(|node| node.source == Source::Input);
    let whole = match (inputs.next().map(|node| node.value.shape.dims()), inputs.next()) {
        (Some(&[whole, ..]), None) => whole,
        _ => {
            return Err(LowerError::of_all(
                "`cache` in `INFER` needs a network with one input, a sequence whose first dimension counts steps",
            ));
        }
    };
    let mut following = Following { whole, cached, axes: Vec::with_capacity(graph.nodes.len()) };
    let mut stepped = graph.clone();
    for (node, own) in graph.nodes.iter().zip(&mut stepped.nodes) {
        let axis = following.node(graph, node, own).map_err(|message| {
            let row: Option<RowId> = (node.row < graph.rows.len()).then_some(node.row);
            LowerError { row, message }
        })?;
        following.axes.push(axis);
    }
    let is_whole = |output: NodeId| graph.value(output).shape.dims().first() == Some(&whole);
    if outputs.len() == 1 && following.axes[outputs[0]] == Some(0) && is_whole(outputs[0]) {
        return Ok(stepped);
    }
    Err(LowerError::of_all(
        "`cache` in `INFER` needs a network with one output, whose first dimension counts the steps of the input",
    ))
}

/// The axis of time steps of each value so far; `None` for a value without time steps.
struct Following {
    whole: u64,
    cached: Cached,
    axes: Vec<Option<usize>>,
}

impl Following {
    /// Turns a node into that of some time steps, and returns its axis of time steps. `None` if it has none.
    fn node(&self, graph: &Graph, node: &Node, own: &mut Node) -> Result<Option<usize>, String> {
        let Cached { steps: cache, chunk } = self.cached;
        let shape = node.value.shape;
        let axis = match &node.source {
            Source::Input => Some(0),
            Source::Parameter(_) => None,
            Source::View(input) => self.view(graph, *input, shape)?,
            Source::Op { op, inputs, buffers, in_place } => {
                let axes: Vec<Option<usize>> = inputs.iter().map(|&input| self.axes[input]).collect();
                let shapes: Vec<Shape> = inputs.iter().map(|&input| graph.value(input).shape).collect();
                let stepped = match self.steps(graph, inputs)? {
                    Some(whole) if self.is_end_cut_off(op, axes[0], whole) => {
                        own.source = Source::View(inputs[0]);
                        own.value.shape = shape.with(axes[0].unwrap_or(0), chunk);
                        return Ok(axes[0]);
                    }
                    Some(whole) => {
                        let sequence = Sequence { inputs: &shapes, axes: &axes, whole, chunk, cache };
                        Some(op.stepped(&sequence)?)
                    }
                    None => self.positions(graph, op, inputs)?.map(|op| (op, 0)),
                };
                let Some((op, axis)) = stepped else { return Ok(None) };
                let (inputs, buffers, in_place) = (inputs.clone(), buffers.clone(), *in_place);
                own.source = Source::Op { op, inputs, buffers, in_place };
                Some(axis)
            }
        };
        if let Some(axis) = axis {
            own.value.shape = shape.with(axis, chunk);
        }
        Ok(axis)
    }

    /// Returns the number of time steps of these values, which must be equal. `None` if none of them has time steps. It may be more than the
    /// sequence has, if a convolution reaches beyond its end.
    fn steps(&self, graph: &Graph, inputs: &[NodeId]) -> Result<Option<u64>, String> {
        let of = |&input: &NodeId| self.axes[input].map(|axis| graph.value(input).shape.dims()[axis]);
        let mut all = inputs.iter().filter_map(of);
        let first = all.next();
        if all.all(|other| Some(other) == first) { Ok(first) } else { Err(Sequence::refusal()) }
    }

    /// True if `op` is the slice that cuts `whole` time steps back to the sequence length. Decoding needs no such slice.
    fn is_end_cut_off(&self, op: &Op, steps: Option<usize>, whole: u64) -> bool {
        let Op::Slice(Slice { start: 0, length, axis, .. }) = *op else { return false };
        steps.map(|steps| steps as u64) == Some(axis) && length == self.whole && whole > length
    }

    /// Returns the axis of time steps in a view; `None` if the viewed value has none. It is as long as that of the viewed value, with as many
    /// elements before it.
    fn view(&self, graph: &Graph, input: NodeId, shape: Shape) -> Result<Option<usize>, String> {
        let Some(axis) = self.axes[input] else { return Ok(None) };
        let viewed = graph.value(input).shape;
        let (whole, before) = (viewed.dims()[axis], product(&viewed.dims()[..axis]));
        let is_it = |&to: &usize| shape.dims()[to] == whole && product(&shape.dims()[..to]) == before;
        (0..shape.rank()).find(is_it).map(Some).ok_or_else(Sequence::refusal)
    }

    /// Returns the operation that computes the positions of the current time steps: rows of a table, or sines and cosines. `None` for any other
    /// operation.
    fn positions(&self, graph: &Graph, op: &Op, inputs: &[NodeId]) -> Result<Option<Op>, String> {
        if let Op::Sinusoid(op) = op {
            return Ok(op.following(self.whole, self.cached.chunk).map(Op::from));
        }
        let Op::Slice(Slice { input: table, start: 0, length, axis: 0 }) = *op else { return Ok(None) };
        let is_table = inputs.iter().all(|&input| matches!(graph.nodes[input].source, Source::Parameter(_)));
        let (&[rows, width], true) = (table.dims(), is_table && length == self.whole) else { return Ok(None) };
        let Cached { steps, chunk } = self.cached;
        if rows < steps {
            return Err(format!(
                "has {rows} positions, but `cache` in `INFER` keeps {steps} steps; give it {steps} positions, or write `cache: {rows}`"
            ));
        }
        Ok(Some(Positions { rows, width, count: chunk }.into()))
    }
}
