//! The network as a graph of layers with every shape known. The macro builds it; lowering reads it.

use crate::layers::arguments::Mistake;
use crate::layers::rule::{Buffer, Parameter, Value};
use crate::layers::{Layer, Tied};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The number of a value: the output of a node.
pub type NodeId = usize;

/// The number of a layer in the order of the forward pass, as users count them.
pub type RowId = usize;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly every node is a layer")]
pub enum Source {
    /// An input of the network.
    Input,
    /// One operation, of a layer or of a part of one.
    Layer {
        /// What it computes.
        layer: Layer,
        /// The values it reads.
        inputs: Vec<NodeId>,
        /// Its parameters, in the layer's order.
        parameters: Vec<usize>,
        /// Its running statistics, in the layer's order.
        buffers: Vec<usize>,
        /// The layer that the user wrote.
        row: RowId,
    },
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it holds.
    pub value: Value,
    /// Where it comes from.
    pub source: Source,
}

/// A layer as the user wrote it: one line of the layer table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its path, such as `stage[0].conv2d[1]`.
    pub path: String,
    /// The layer.
    pub layer: Layer,
    /// What arrives at it.
    pub inputs: Vec<Value>,
    /// What it produces.
    pub output: Value,
    /// Elements of the parameters that it owns: none where it shares another layer's.
    pub parameters: u64,
    /// Numbers of its parameters.
    parameter_ids: Vec<usize>,
    /// Numbers of its running statistics.
    buffer_ids: Vec<usize>,
}

/// A network as a graph.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Values in the order of the forward pass: inputs come before what is computed from them.
    pub nodes: Vec<Node>,
    /// The layers in the order of the forward pass.
    pub rows: Vec<Row>,
    /// All parameters with their full names and the row that owns them.
    pub parameters: Vec<(String, RowId, Parameter)>,
    /// All running statistics with their full names and the row that owns them.
    pub buffers: Vec<(String, RowId, Buffer)>,
}

/// More elements than this in one tensor are refused as an overflow: no card has room for them, and below it every sum
/// over a network stays within `u64`.
pub const MOST_ELEMENTS: u64 = 1 << 48;

impl Graph {
    /// Adds an input.
    ///
    /// # Errors
    /// More elements than [`MOST_ELEMENTS`].
    pub fn input(&mut self, value: Value) -> Result<NodeId, Mistake> {
        check_elements("an input", value)?;
        self.nodes.push(Node { value, source: Source::Input });
        Ok(self.nodes.len() - 1)
    }

    /// What a node holds.
    pub fn value(&self, node: NodeId) -> Value {
        self.nodes[node].value
    }

    /// Adds a layer. `owner` is the row whose parameters it shares, if any.
    ///
    /// # Errors
    /// Parameters that differ in shape from the owner's, or tensors of more than [`MOST_ELEMENTS`] elements.
    pub fn layer(
        &mut self,
        layer: Layer,
        inputs: &[NodeId],
        path: String,
        owner: Option<RowId>,
    ) -> Result<NodeId, Mistake> {
        let values: Vec<Value> = inputs.iter().map(|&node| self.value(node)).collect();
        let batched = !layer.ignores_input() && values.iter().any(|value| value.batched);
        let output = Value { shape: layer.output(), index: false, batched };
        check_elements("an output", output)?;
        let row = self.rows.len();
        let parts = layer.expand().unwrap_or_else(|| [("", layer.clone())].to_vec());
        let (parameter_ids, buffer_ids) = match owner {
            Some(owner) => self.shared(&layer, owner)?,
            None => self.declare(&parts, &path, row)?,
        };
        let parameters = match owner {
            Some(_) => 0,
            None => parameter_ids.iter().map(|&id| self.parameters[id].2.shape.elements().unwrap_or(0)).sum(),
        };
        self.add_parts(parts, inputs, batched, row, (&parameter_ids, &buffer_ids));
        self.rows.push(Row { path, layer, inputs: values, output, parameters, parameter_ids, buffer_ids });
        Ok(self.nodes.len() - 1)
    }

    /// Adds the transposed use of the weight of `owner`.
    ///
    /// # Errors
    /// An owner without such a weight, or an input of another width.
    pub fn tied(&mut self, owner: RowId, input: NodeId, path: String) -> Result<NodeId, Mistake> {
        let tied = Tied::to(&self.rows[owner].layer, &[self.value(input)])?;
        self.layer(Layer::Tied(tied), &[input], path, Some(owner))
    }

    /// One node for each part; the parts of a layer follow each other.
    fn add_parts(
        &mut self,
        parts: Vec<(&'static str, Layer)>,
        inputs: &[NodeId],
        batched: bool,
        row: RowId,
        (mut parameters, mut buffers): (&[usize], &[usize]),
    ) {
        let mut arriving = inputs.to_vec();
        for (_, layer) in parts {
            let (own, rest) = parameters.split_at(layer.parameters().len().min(parameters.len()));
            parameters = rest;
            let (own_buffers, rest) = buffers.split_at(layer.buffers().len().min(buffers.len()));
            buffers = rest;
            let value = Value { shape: layer.output(), index: false, batched };
            let source = Source::Layer {
                layer,
                inputs: core::mem::take(&mut arriving),
                parameters: own.to_vec(),
                buffers: own_buffers.to_vec(),
                row,
            };
            self.nodes.push(Node { value, source });
            arriving = [self.nodes.len() - 1].to_vec();
        }
    }

    /// Declares the parameters and running statistics of a layer's parts.
    fn declare(
        &mut self,
        parts: &[(&'static str, Layer)],
        path: &str,
        row: RowId,
    ) -> Result<(Vec<usize>, Vec<usize>), Mistake> {
        let (first_parameter, first_buffer) = (self.parameters.len(), self.buffers.len());
        for (part, layer) in parts {
            let prefix = if part.is_empty() { path.into() } else { format!("{path}.{part}") };
            for parameter in layer.parameters() {
                check_elements("a parameter", Value::numbers(parameter.shape))?;
                self.parameters.push((format!("{prefix}.{}", parameter.name), row, parameter));
            }
            for buffer in layer.buffers() {
                self.buffers.push((format!("{prefix}.{}", buffer.name), row, buffer));
            }
        }
        Ok(((first_parameter..self.parameters.len()).collect(), (first_buffer..self.buffers.len()).collect()))
    }

    /// The parameters and running statistics of `owner`, checked to be what `layer` needs.
    fn shared(&self, layer: &Layer, owner: RowId) -> Result<(Vec<usize>, Vec<usize>), Mistake> {
        let owner = &self.rows[owner];
        let needed = layer.parameters();
        let ids: Vec<usize> = owner.parameter_ids.iter().copied().take(needed.len()).collect();
        for (parameter, &id) in needed.iter().zip(&ids) {
            let (name, _, own) = &self.parameters[id];
            if own.shape != parameter.shape {
                return Err(Mistake::new(format!(
                    "shares `{name}`, whose shape is {}, but here it needs {}; use a layer of its own",
                    own.shape, parameter.shape
                )));
            }
        }
        let buffers = if layer.buffers().is_empty() { Vec::new() } else { owner.buffer_ids.clone() };
        Ok((ids, buffers))
    }
}

fn check_elements(what: &str, value: Value) -> Result<(), Mistake> {
    match value.shape.elements() {
        Some(elements) if elements <= MOST_ELEMENTS => Ok(()),
        _ => Err(Mistake::new(format!(
            "has {what} of shape {}, more than the {MOST_ELEMENTS} elements that one tensor can have; check its numbers",
            value.shape
        ))),
    }
}
