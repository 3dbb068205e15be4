//! The graph: a network as operations on values with known shapes. The macro builds it from layers, and lowering reads it.

mod beside;
mod coded;
#[cfg(feature = "lower")]
mod display;
mod encoding;
mod lines;
mod lora;

use crate::number::Role;
use crate::program::op::Edge;
use crate::program::{Init, Op};
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec::Vec;
pub(crate) use beside::Beside;
#[cfg(feature = "lower")]
pub(crate) use beside::StepStates;
pub use coded::SCALES;
use core::fmt;
use core::ops::Range;
pub use lines::{SourceLine, SourceLines};
pub use lora::Lora;

/// The number of a node in [`Graph::nodes`].
pub type NodeId = usize;

/// The index of a layer's row in the order of the forward pass, as users count layers.
pub type RowId = usize;

/// The kind of a value's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// Numbers of the network's format.
    Numbers,
    /// Indices, such as tokens.
    Indices,
    /// Pixel values from 0 to 255, as images are stored.
    Bytes,
}

impl Elements {
    /// Returns the role of a tensor with these elements.
    pub fn role(self) -> Role {
        match self {
            Elements::Numbers => Role::Activation,
            Elements::Indices => Role::Index,
            Elements::Bytes => Role::Byte,
        }
    }
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type {
    /// Dimensions of one sample.
    pub shape: Shape,
    /// The kind of its elements.
    pub elements: Elements,
    /// True if each sample has one, false if there is one for the whole batch.
    pub batched: bool,
}

impl Type {
    /// Returns the type of numbers of this shape for each sample.
    pub fn numbers(shape: Shape) -> Type {
        Type { shape, elements: Elements::Numbers, batched: true }
    }

    /// Returns the type of indices of this shape for each sample.
    pub fn indices(shape: Shape) -> Type {
        Type { shape, elements: Elements::Indices, batched: true }
    }

    /// Returns the type of bytes of this shape for each sample.
    pub fn bytes(shape: Shape) -> Type {
        Type { shape, elements: Elements::Bytes, batched: true }
    }

    /// True if it consists of numbers.
    pub fn is_numbers(&self) -> bool {
        self.elements == Elements::Numbers
    }
}

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its full name: `stage[0].conv2d[1].weight`.
    pub name: String,
    /// The row of the layer that owns it.
    pub row: RowId,
    /// Its dimensions, in PyTorch's order.
    pub shape: Shape,
    /// [`Role::Weight`] or [`Role::Norm`]; [`Role::Int8`], [`Role::Nf4`] or [`Role::Nf4Double`] if quantized; [`Role::Scale`] for scales.
    pub role: Role,
    /// The rule that fills it before the first step.
    pub init: Init,
}

/// A running statistic.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Its full name: `batch_norm2d.running_mean`.
    pub name: String,
    /// The row of the layer that owns it.
    pub row: RowId,
    /// Its dimensions.
    pub shape: Shape,
    /// The rule that fills it before the first step.
    pub init: Init,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "most nodes are operations")]
pub enum Source {
    /// An input of the network.
    Input,
    /// A parameter, by its index in [`Graph::parameters`].
    Parameter(usize),
    /// The memory of another node under another shape.
    View(NodeId),
    /// An operation.
    Op {
        /// The computation.
        op: Op,
        /// The values it reads, parameters among them.
        inputs: Vec<NodeId>,
        /// Its running statistics, by their indices in [`Graph::buffers`].
        buffers: Vec<usize>,
        /// True if the user asked for the output to overwrite the input.
        in_place: bool,
    },
}

/// A value with its source.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its type.
    pub value: Type,
    /// Its source.
    pub source: Source,
    /// The row of the layer that made it. It means nothing for an input.
    pub row: RowId,
    /// True if no gradient goes through this node. It is then a use of a parameter inside `freeze`, or a view made by `detach`. Other uses of
    /// the parameter may have a gradient.
    pub detached: bool,
}

impl Node {
    /// Returns the nodes from which it is computed.
    pub fn inputs(&self) -> &[NodeId] {
        match &self.source {
            Source::Input | Source::Parameter(_) => &[],
            Source::View(input) => core::slice::from_ref(input),
            Source::Op { inputs, .. } => inputs,
        }
    }
}

/// A layer as the user wrote it: one line of the layer table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its path, such as `stage[0].conv2d[1]`.
    pub path: String,
    /// The layer's name in the language.
    pub kind: String,
    /// The type of its output.
    pub output: Type,
    /// Elements of the parameters that it owns; 0 if it shares another layer's.
    pub parameters: u64,
    /// Indices of its parameters, its own or those it shares.
    pub(crate) parameter_ids: Vec<usize>,
    /// Indices of its running statistics.
    pub(crate) buffer_ids: Vec<usize>,
}

/// A network as a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Values in the order of the forward pass: inputs come before the values that are computed from them.
    pub nodes: Vec<Node>,
    /// The layers in the order of the forward pass.
    pub rows: Vec<Row>,
    /// All parameters.
    pub parameters: Vec<Parameter>,
    /// All running statistics.
    pub buffers: Vec<Buffer>,
    /// Ranges of nodes that the backward pass recomputes: the first node, and the one after the last.
    pub groups: Vec<[NodeId; 2]>,
    /// The source lines of the layers. Only the graph of a blueprint that the macro or a source file made has them. Encoded with the blueprint.
    pub lines: SourceLines,
    /// The rows of each `lora` without a `base`. Frozen weights in them may be quantized. Encoded with the blueprint.
    pub loras: Vec<Range<RowId>>,
    /// Facts that all programs of a network with several steps share, while one of them is lowered; else `None`. Not encoded.
    pub(crate) beside: Option<Beside>,
}

/// Most elements of one tensor. More are refused as an overflow: no card has memory for them, and up to this limit every sum
/// over a network fits `u64`.
pub const MOST_ELEMENTS: u64 = 1 << 48;

/// A tensor of more than [`MOST_ELEMENTS`] elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// The tensor, in words: `an output`.
    pub what: &'static str,
    /// Its dimensions.
    pub shape: Shape,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooLarge { what, shape } = self;
        write!(
            f,
            "has {what} of shape {shape}, more than the {MOST_ELEMENTS} elements that one tensor can have; \
             check its numbers"
        )
    }
}

/// Checks that a tensor has at most [`MOST_ELEMENTS`] elements.
pub(crate) fn check_elements(what: &'static str, shape: Shape) -> Result<(), TooLarge> {
    match shape.elements() {
        Some(elements) if elements <= MOST_ELEMENTS => Ok(()),
        _ => Err(TooLarge { what, shape }),
    }
}

/// Returns the assertions of a view: both of its sides flatten to one vector.
fn view_edges(input: Shape, output: Shape) -> Vec<Edge> {
    let vector = Shape::new(&[crate::shape::product(input.dims())]);
    let flat = |shape: Shape| (shape != vector).then(|| Edge::new("Flatten", &[], shape, vector));
    [input, output].into_iter().filter_map(flat).collect()
}

impl Graph {
    /// Adds an input.
    ///
    /// # Errors
    /// More elements than [`MOST_ELEMENTS`].
    pub fn input(&mut self, value: Type) -> Result<NodeId, TooLarge> {
        check_elements("an input", value.shape)?;
        Ok(self.node(value, Source::Input, 0))
    }

    pub(crate) fn node(&mut self, value: Type, source: Source, row: RowId) -> NodeId {
        self.nodes.push(Node { value, source, row, detached: false });
        self.nodes.len() - 1
    }

    /// Adds a view of a value through which no gradient goes: `x.detach()`.
    pub fn detach(&mut self, node: NodeId) -> NodeId {
        let Node { value, row, .. } = self.nodes[node];
        let view = self.node(value, Source::View(node), row);
        self.nodes[view].detached = true;
        view
    }

    /// Returns the type of a node's value.
    pub fn value(&self, node: NodeId) -> Type {
        self.nodes[node].value
    }

    /// Freezes a layer's parameters, its own or shared ones, in every use of them: training does not change them.
    pub fn freeze(&mut self, row: RowId) {
        let Graph { nodes, rows, .. } = self;
        let is_it =
            |node: &&mut Node| matches!(node.source, Source::Parameter(id) if rows[row].parameter_ids.contains(&id));
        nodes.iter_mut().filter(is_it).for_each(|node| node.detached = true);
    }

    /// Freezes one parameter in every use of it.
    pub fn freeze_parameter(&mut self, parameter: usize) {
        let uses = self.nodes.iter_mut().filter(|node| node.source == Source::Parameter(parameter));
        uses.for_each(|node| node.detached = true);
    }

    /// Returns true for each parameter whose uses are all frozen, so that training does not change it.
    pub fn frozen_parameters(&self) -> Vec<bool> {
        let mut frozen = alloc::vec![true; self.parameters.len()];
        for node in &self.nodes {
            if let Source::Parameter(parameter) = node.source {
                frozen[parameter] &= node.detached;
            }
        }
        frozen
    }

    /// Iterates over the parameters that training changes: those with a use outside of `freeze`.
    pub fn trained_parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters
            .iter()
            .zip(self.frozen_parameters())
            .filter(|(_, frozen)| !frozen)
            .map(|(parameter, _)| parameter)
    }

    /// Tells of each value whether it depends on something that has a gradient: a use of a parameter that is not frozen or, with `of_inputs`,
    /// an input of numbers. Nothing before a `detach` counts, and nothing that only indices are made of.
    pub fn differentiable(&self, of_inputs: bool) -> Vec<bool> {
        let mut all: Vec<bool> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let is_it = match &node.source {
                Source::Input => of_inputs && node.value.is_numbers(),
                Source::Parameter(_) => true,
                Source::View(_) | Source::Op { .. } => node.inputs().iter().any(|&input| all[input]),
            };
            all.push(is_it && !node.detached && node.value.elements != Elements::Indices);
        }
        all
    }

    /// Returns the type-level assertions of all operations and views, each with its row.
    pub fn edges(&self) -> Vec<(RowId, Edge)> {
        let edges = self.nodes.iter().flat_map(|node| {
            let shapes: Vec<Shape> = node.inputs().iter().map(|&input| self.value(input).shape).collect();
            let edges = match &node.source {
                Source::Input | Source::Parameter(_) => Vec::new(),
                Source::View(_) => view_edges(shapes[0], node.value.shape),
                Source::Op { op, .. } => op.edges(&shapes),
            };
            edges.into_iter().map(|edge| (node.row, edge))
        });
        edges.collect()
    }

    /// Returns the multiply-accumulate operations of one sample's forward pass in each row, up to these outputs. Nodes that only the loss
    /// reads, such as an auxiliary head, do not count.
    pub fn macs(&self, outputs: &[NodeId]) -> Vec<u64> {
        let mut macs = alloc::vec![0u64; self.rows.len()];
        let is_read = self.leads_to(outputs);
        for node in self.nodes.iter().zip(is_read).filter_map(|(node, is_read)| is_read.then_some(node)) {
            if let (Source::Op { op, .. }, Some(sum)) = (&node.source, macs.get_mut(node.row)) {
                *sum = sum.saturating_add(op.macs());
            }
        }
        macs
    }

    /// Returns true for each node in `ends`, and for each node from which one of them is computed.
    fn leads_to(&self, ends: &[NodeId]) -> Vec<bool> {
        let mut leads = alloc::vec![false; self.nodes.len()];
        let mut ahead = ends.to_vec();
        while let Some(id) = ahead.pop() {
            if let Some(node) = self.nodes.get(id).filter(|_| !leads[id]) {
                leads[id] = true;
                ahead.extend(node.inputs());
            }
        }
        leads
    }
}
