//! Logits in chunks: they exist for some time steps of each sample at a time.
//!
//! A language model has a logit for each class at each time step, which is often the largest tensor of a training step. With `chunks` in the
//! loss, logits are computed between the terms of the loss. For one chunk of the time steps, activations are sliced, mapped to logits and
//! measured, and gradients are propagated to activations and parameters. Then the next chunk takes the memory. No product is computed twice. Each
//! chunk is a term of its own, whose divisor is that of the whole.
//!
//! The head of a language model often shares its weight with the embedding, whose gradient comes last. So the gradient of that weight would live
//! from the loss to the end. With [`Chunks::Twice`], gradients flow from the chunks to all but the shared weight. Before the embedding adds its
//! gradient, the logits of each chunk are computed again, and their gradients flow to the shared weight alone. The parts of each gradient are added
//! in the same order as with [`Chunks::Count`], so that it is equal to the bit.

use crate::graph::{Graph, Node, NodeId, RowId, Source, Type};
use crate::lower::analysis::reachable;
use crate::lower::options::{LowerError, Term, Training};
use crate::program::loss::{Chunks, LossOptions};
use crate::program::ops::{CodedProduct, Pointwise, Product, Slice, Sum};
use crate::program::{Criterion, Measure, Op};
use crate::shape::Shape;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The most chunks of a loss: each one adds operations of its own.
pub const MOST_CHUNKS: u64 = 256;

/// The most chunks that [`Chunks::Auto`] chooses. The logits of one of them are next to nothing, and each chunk adds operations of its own.
const MOST_AUTOMATIC: u64 = 64;

/// A range of the time steps that a term measures.
#[derive(Clone, Debug)]
pub(in crate::lower) struct Chunk {
    /// The nodes that are computed for this chunk alone.
    pub(in crate::lower) nodes: Range<NodeId>,
    /// The node with its logits.
    pub(in crate::lower) value: NodeId,
    /// The first of its time steps, and the number of time steps of all chunks.
    pub(in crate::lower) first: u64,
    pub(in crate::lower) whole: u64,
    /// The nodes that compute its logits a second time, for the gradients of shared weights; `None` if logits are computed once.
    pub(in crate::lower) again: Option<Again>,
}

/// The second computation of a chunk's logits.
#[derive(Clone, Debug)]
pub(in crate::lower) struct Again {
    pub(in crate::lower) nodes: Range<NodeId>,
    /// The node with the logits.
    pub(in crate::lower) value: NodeId,
}

/// The gradients that flow from the logits of a chunk.
#[derive(Clone, Copy, Debug)]
enum Flow<'s> {
    All,
    /// All but those of these parameters.
    AllBut(&'s BTreeSet<usize>),
    /// Those of these parameters alone.
    Only(&'s BTreeSet<usize>),
}

impl Flow<'_> {
    /// True if a gradient flows to this parameter, or to another value for `None`.
    fn reaches(self, parameter: Option<usize>) -> bool {
        let is_among = |all: &BTreeSet<usize>| parameter.is_some_and(|parameter| all.contains(&parameter));
        match self {
            Flow::All => true,
            Flow::AllBut(shared) => !is_among(shared),
            Flow::Only(shared) => is_among(shared),
        }
    }
}

/// A graph in which logits that are measured in chunks are computed in chunks.
pub(in crate::lower) struct Chunked {
    pub(in crate::lower) graph: Graph,
    /// The chunks of each term, in order; none for a term that measures a whole value.
    pub(in crate::lower) terms: Vec<Vec<Chunk>>,
}

/// The part of a graph that maps activations to logits, row by row: a row is a time step.
struct Head {
    rows: u64,
    classes: u64,
    end: NodeId,
    /// All nodes with a number for each class of each row, in order.
    wide: BTreeSet<NodeId>,
    /// The activations that are mapped to classes, as rows.
    narrow: BTreeSet<NodeId>,
}

impl Head {
    /// Returns the head that computes the logits `end`. Fails if they are not logits of a sequence.
    fn of(graph: &Graph, end: NodeId) -> Result<Head, String> {
        let value = graph.value(end);
        let criterion = Criterion::new(Measure::CrossEntropy, 1.0, LossOptions::DEFAULT, value.shape);
        if !(criterion.is_of_rows() && criterion.outer > 1 && value.batched) {
            let shape = value.shape;
            return Err(format!(
                "`chunks` are parts of the steps of a sequence, and the loss measures a value of shape {shape}; remove `chunks`"
            ));
        }
        let (rows, classes) = (criterion.outer, criterion.classes);
        let mut head = Head { rows, classes, end, wide: BTreeSet::new(), narrow: BTreeSet::new() };
        let mut waiting = vec![end];
        while let Some(id) = waiting.pop() {
            if head.wide.insert(id) {
                waiting.extend(head.add(graph, id)?);
            }
        }
        Ok(head)
    }

    /// Returns the wide nodes that a wide node is computed from. Fails if its operation cannot be chunked.
    fn add<'g>(&mut self, graph: &'g Graph, id: NodeId) -> Result<&'g [NodeId], String> {
        let Node { value, source, row, .. } = &graph.nodes[id];
        let is_wide = value.batched
            && value.shape.last() == self.classes
            && value.shape.elements() == self.rows.checked_mul(self.classes);
        let map = |op: &Product| op.rows == self.rows && op.out_features == self.classes;
        match source {
            Source::View(_) if is_wide => return Ok(graph.nodes[id].inputs()),
            Source::Op { op: Op::Sum(_) | Op::Pointwise(_), inputs, .. } if is_wide => return Ok(inputs),
            Source::Op { op: Op::Product(op), inputs, .. } if is_wide && map(op) => {
                let is_batched = graph.value(inputs[0]).batched;
                if is_batched {
                    self.narrow.insert(inputs[0]);
                    return Ok(&[]);
                }
            }
            Source::Op { op: Op::CodedProduct(op), inputs, .. } if is_wide && map(&op.product) => {
                self.narrow.insert(inputs[0]);
                return Ok(&[]);
            }
            _ => {}
        }
        let made = match source {
            Source::Op { .. } => graph.rows.get(*row).map(|row| format!("`{}` makes them", row.kind)),
            _ => None,
        };
        let made = made.unwrap_or_else(|| "no layer makes them".into());
        Err(format!("`chunks` takes logits that `Linear` or `Tied` makes of a sequence, but {made}; remove `chunks`"))
    }

    /// True if one of these values, or an activation that the head maps, depends on the logits.
    fn is_read_for(&self, graph: &Graph, others: &[NodeId]) -> bool {
        let ends: Vec<NodeId> = others.iter().chain(&self.narrow).copied().collect();
        let reached = reachable(graph, &ends);
        self.wide.iter().any(|&node| reached[node])
    }

    /// Returns the trained parameters that the head shares with other layers.
    fn shared(&self, graph: &Graph) -> BTreeSet<usize> {
        let parameter = |id: &NodeId| match &graph.nodes[*id] {
            Node { source: Source::Parameter(parameter), detached: false, .. } => Some(*parameter),
            _ => None,
        };
        let read = |is_wide: bool| {
            let nodes = (0..graph.nodes.len()).filter(move |id| self.wide.contains(id) == is_wide);
            nodes.flat_map(|id| graph.nodes[id].inputs()).filter_map(parameter).collect::<BTreeSet<usize>>()
        };
        &read(true) & &read(false)
    }

    /// Adds the nodes that compute the logits of some rows, and returns the last of them.
    fn cut(&self, graph: &mut Graph, first: u64, length: u64, flow: Flow<'_>) -> NodeId {
        let mut places: BTreeMap<NodeId, NodeId> = BTreeMap::new();
        for &id in &self.narrow {
            let row = graph.nodes[self.end].row;
            let from = if flow.reaches(None) { id } else { graph.detach(id) };
            let place = cut_rows(graph, from, row, [self.rows, first, length]);
            places.insert(id, place);
        }
        let shape = Shape::new(&[length, self.classes]);
        for &id in &self.wide {
            let Node { value, source, row, detached } = graph.nodes[id].clone();
            let place = match source {
                Source::Op { op, mut inputs, .. } => {
                    // Inputs that have classes or are mapped to classes are cut; all rows share weights and biases.
                    for (index, input) in inputs.iter_mut().enumerate() {
                        let is_of_rows = index == 0 || matches!(op, Op::Sum(_));
                        *input = if is_of_rows { places[input] } else { weight(graph, *input, flow) };
                    }
                    graph.computed(Type { shape, ..value }, of_rows_alone(op, length, shape), inputs, row)
                }
                Source::View(input) if detached => graph.detach(places[&input]),
                Source::View(input) => places[&input],
                Source::Input | Source::Parameter(_) => id,
            };
            places.insert(id, place);
        }
        places[&self.end]
    }
}

/// Returns a weight of the head as a chunk reads it: without a gradient if none flows there.
fn weight(graph: &mut Graph, id: NodeId, flow: Flow<'_>) -> NodeId {
    let Node { value, row, .. } = graph.nodes[id];
    match graph.nodes[id].source {
        Source::Parameter(parameter) if !flow.reaches(Some(parameter)) => {
            let other = graph.node(value, Source::Parameter(parameter), row);
            graph.nodes[other].detached = true;
            other
        }
        Source::Parameter(_) => id,
        _ if flow.reaches(None) => id,
        _ => graph.detach(id),
    }
}

/// Returns `length` rows of activations from `first` on, for the layer that maps them.
fn cut_rows(graph: &mut Graph, id: NodeId, row: RowId, [rows, first, length]: [u64; 3]) -> NodeId {
    let value = graph.value(id);
    let width = value.shape.last();
    let input = Shape::new(&[rows, width]);
    let from = match value.shape == input {
        true => id,
        false => graph.node(Type { shape: input, ..value }, Source::View(id), row),
    };
    let op = Slice { input, start: first, length, axis: 0 };
    graph.computed(Type { shape: Shape::new(&[length, width]), ..value }, op, vec![from], row)
}

/// Returns the operation for this number of rows, whose output has this shape.
fn of_rows_alone(op: Op, rows: u64, shape: Shape) -> Op {
    match op {
        Op::Product(op) => Product { rows, shape, ..op }.into(),
        Op::CodedProduct(CodedProduct { coding, product }) => {
            CodedProduct { coding, product: Product { rows, shape, ..product } }.into()
        }
        Op::Sum(op) => Sum { shape, ..op }.into(),
        Op::Pointwise(op) => Pointwise { shape, ..op }.into(),
        other => other,
    }
}

/// Returns the head whose logits a term measures in chunks. Fails with a message if it cannot be chunked.
fn head(graph: &Graph, outputs: &[NodeId], loss: &[Term], index: usize) -> Result<Head, String> {
    let term = &loss[index];
    if term.measure != Measure::CrossEntropy {
        return Err("`chunks` is of `CrossEntropy` alone; remove it".into());
    }
    let measured = |term: &Term| term.values(outputs).unwrap_or_default();
    let Some(&end) = measured(term).first() else { return Err("the loss measures nothing".into()) };
    let head = Head::of(graph, end)?;
    let chunks = term.options.chunks.at_first();
    if chunks > head.rows {
        let rows = head.rows;
        return Err(format!("{rows} steps are no {chunks} chunks; write `chunks: {rows}` or fewer"));
    }
    if chunks > MOST_CHUNKS {
        return Err(format!("`chunks` is at most {MOST_CHUNKS}: each has operations of its own"));
    }
    let others = loss.iter().enumerate().filter(|(other, _)| *other != index).flat_map(|(_, term)| measured(term));
    if head.is_read_for(graph, &others.collect::<Vec<_>>()) {
        let message = "with `chunks` the logits are never there as a whole, and something else in training reads them; remove `chunks`";
        return Err(message.into());
    }
    Ok(head)
}

/// Returns why a term of a loss cannot be measured in its chunks, to be read after `chunks`. `None` if it can.
pub fn unchunkable(graph: &Graph, outputs: &[NodeId], loss: &[Term], index: usize) -> Option<String> {
    if loss[index].options.chunks == Chunks::WHOLE { None } else { head(graph, outputs, loss, index).err() }
}

/// Returns the numbers of chunks between which [`Chunks::Auto`] chooses, the fewest first: powers of two up to [`MOST_AUTOMATIC`] and to the
/// time steps of the longest sequence that a term measures in chunks. Only 1 without such a term.
pub(in crate::lower) fn automatic_counts(graph: &Graph, outputs: &[NodeId], loss: &[Term]) -> Vec<u64> {
    let most = loss.iter().enumerate().filter(|(_, term)| term.options.chunks == Chunks::Auto);
    let most = most.filter_map(|(index, _)| Some(head(graph, outputs, loss, index).ok()?.rows)).max().unwrap_or(1);
    (0..u64::BITS).map(|power| 1 << power).take_while(|&count| count <= most.min(MOST_AUTOMATIC)).collect()
}

/// True if the head of a term with [`Chunks::Auto`] shares a weight with another layer.
pub(in crate::lower) fn shares_automatic(graph: &Graph, outputs: &[NodeId], loss: &[Term]) -> bool {
    let mut automatic = (0..loss.len()).filter(|&index| loss[index].options.chunks == Chunks::Auto);
    automatic.any(|index| head(graph, outputs, loss, index).is_ok_and(|head| !head.shared(graph).is_empty()))
}

/// Replaces each [`Chunks::Auto`] by these chunks, or by as many as there are time steps if those are fewer.
pub(in crate::lower) fn settle_automatic(graph: &Graph, outputs: &[NodeId], loss: &mut [Term], chunks: Chunks) {
    let rows: Vec<u64> = (0..loss.len()).map(|at| head(graph, outputs, loss, at).map_or(1, |head| head.rows)).collect();
    for (term, rows) in loss.iter_mut().zip(rows) {
        if term.options.chunks == Chunks::Auto {
            term.options.chunks = match chunks {
                Chunks::Twice(count) => Chunks::Twice(count.min(rows)),
                chunks => Chunks::Count(chunks.at_first().min(rows)),
            };
        }
    }
}

/// Returns the graph in which logits are computed in the chunks that the terms of the loss ask for.
pub(in crate::lower) fn chunked(
    graph: &Graph,
    outputs: &[NodeId],
    training: Option<Training<'_>>,
) -> Result<Chunked, LowerError> {
    let loss = training.map_or(&[][..], |training| training.loss);
    let mut chunked = Chunked { graph: graph.clone(), terms: vec![Vec::new(); loss.len()] };
    // A gradient that lives until the end of the step in any case may begin early.
    let is_held = training.is_some_and(|training| training.holds_gradients());
    let counted = loss.iter().map(|term| term.options.chunks.at_first());
    for (index, chunks) in counted.enumerate().filter(|&(_, chunks)| chunks > 1) {
        let head = head(graph, outputs, loss, index).map_err(|message| LowerError::of_all(&message))?;
        let whole = head.rows;
        let shared = match loss[index].options.chunks {
            Chunks::Twice(_) if !is_held => Some(head.shared(graph)).filter(|shared| !shared.is_empty()),
            _ => None,
        };
        // The first time step of chunk number `at`. The lengths of chunks differ by one at most.
        let begin = |at: u64| (u128::from(whole) * u128::from(at) / u128::from(chunks)) as u64;
        for at in 0..chunks {
            let first = begin(at);
            let mut cut = |flow: Flow<'_>| {
                let from = chunked.graph.nodes.len();
                let value = head.cut(&mut chunked.graph, first, begin(at + 1) - first, flow);
                (from..chunked.graph.nodes.len(), value)
            };
            let (nodes, value) = cut(shared.as_ref().map_or(Flow::All, Flow::AllBut));
            let again = shared.as_ref().map(|shared| cut(Flow::Only(shared)));
            let again = again.map(|(nodes, value)| Again { nodes, value });
            chunked.terms[index].push(Chunk { nodes, value, first, whole, again });
        }
    }
    Ok(chunked)
}
