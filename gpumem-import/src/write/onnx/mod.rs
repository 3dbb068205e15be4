//! Writes a network as an ONNX file for inference, of opset 20 and with an open batch size.
//!
//! Parameters have PyTorch's names. Random zeros are left out, and BatchNorm uses its running statistics. What no output needs, such as the
//! head of a loss, is left out too. A file whose tensors would be longer than what a message can hold has them in a second file beside it.

mod attention;
mod file;
mod functions;
mod layers;
mod movement;
mod norms;
mod places;
mod pools;
mod positions;
mod recurrent;
mod resize;
mod scan;

use crate::error::Error;
use crate::read::onnx::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use file::{float, int, ints, list, text};
use gpumem_core::graph::{Graph, NodeId, Source};
use gpumem_core::network::torch_name;
use gpumem_core::program::Op;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The most bytes of tensors in a file of its own. A message has at most 2 GiB.
const MOST_INLINE: u64 = 1 << 30;

/// The longest table of numbers that is made for a file, in elements.
const LONGEST_TABLE: u64 = 1 << 28;

/// A source of tensors: the elements of a key as f32, for the shape that the network has.
pub type Tensors<'t> = dyn FnMut(&str, &[u64]) -> Result<Vec<u8>, Error> + 't;

/// Returns the path of the second file, which has tensors that are too long for the first.
pub fn data_file(path: &Path) -> PathBuf {
    path.with_extension("onnx.data")
}

/// Writes the network with these outputs to a file.
///
/// # Errors
/// Lists the operations that have no form in ONNX, and the tensors that are missing.
pub fn write(
    graph: &Graph,
    outputs: &[NodeId],
    name: &str,
    tensors: &mut Tensors<'_>,
    path: &Path,
) -> Result<(), Error> {
    write_split(graph, outputs, name, tensors, path, MOST_INLINE)
}

/// Writes the network as [`write()`] does, with tensors of more than `most` bytes together in a second file.
///
/// # Errors
/// Those of [`write()`].
pub fn write_split(
    graph: &Graph,
    outputs: &[NodeId],
    name: &str,
    tensors: &mut Tensors<'_>,
    path: &Path,
    most: u64,
) -> Result<(), Error> {
    let mut writer = Writer {
        graph,
        nodes: Vec::new(),
        constants: BTreeMap::new(),
        names: Vec::new(),
        used: BTreeMap::new(),
        reshaped: BTreeMap::new(),
        unknown: BTreeMap::new(),
        place: String::new(),
    };
    for stored in graph.parameters.iter().map(|it| &it.name).chain(graph.buffers.iter().map(|it| &it.name)) {
        writer.unique(&torch_name(stored));
    }
    for (id, (node, is_needed)) in graph.nodes.iter().zip(needed(graph, outputs)).enumerate() {
        let name = if is_needed || node.source == Source::Input { writer.value(id) } else { String::new() };
        writer.names.push(name);
    }
    if !writer.unknown.is_empty() {
        let kinds = writer.unknown.iter().map(|(kind, (count, place, reason))| {
            let count = if *count == 1 { "once".into() } else { format!("{count} times") };
            format!("\n    {kind}, {count}, first in `{place}`: {reason}")
        });
        let list: String = kinds.collect();
        return Err(Error::new(path, format!("is not written, since ONNX lacks operations of the network:{list}")));
    }
    let mut file = GraphProto { name: Some(name.into()), ..GraphProto::default() };
    for (id, node) in graph.nodes.iter().enumerate() {
        if node.source == Source::Input {
            file.input.push(writer.described(id, &writer.names[id]));
        }
    }
    for (index, &output) in outputs.iter().enumerate() {
        let called = if outputs.len() == 1 { String::from("output") } else { format!("output_{index}") };
        let called = writer.unique(&called);
        writer.nodes.push(NodeProto {
            op_type: Some("Identity".into()),
            name: Some(format!("Identity_{index}")),
            input: vec![writer.names[output].clone()],
            output: vec![called.clone()],
            ..NodeProto::default()
        });
        file.output.push(writer.described(output, &called));
    }
    writer.finish(file, tensors, path, most)
}

/// Returns true for each node from which an output is computed.
fn needed(graph: &Graph, outputs: &[NodeId]) -> Vec<bool> {
    let mut needed = vec![false; graph.nodes.len()];
    let mut ahead = outputs.to_vec();
    while let Some(id) = ahead.pop() {
        if !std::mem::replace(&mut needed[id], true) {
            ahead.extend(graph.nodes[id].inputs());
        }
    }
    needed
}

/// A network of which nodes of ONNX have been made.
struct Writer<'g> {
    graph: &'g Graph,
    nodes: Vec<NodeProto>,
    constants: BTreeMap<String, TensorProto>,
    /// The name of each value.
    names: Vec<String>,
    /// The number of times that each name was asked for.
    used: BTreeMap<String, usize>,
    /// The value that was given another shape, and the shape that it had, by the name that it has since.
    reshaped: BTreeMap<String, (String, Vec<u64>)>,
    /// Operations without a form in ONNX: their number, the layer of the first one, and the reason.
    unknown: BTreeMap<&'static str, (usize, String, &'static str)>,
    /// The layer whose operations are written, as PyTorch names it.
    place: String,
}

/// Returns the elements of a table. `None` if a file cannot have so many.
fn table(sizes: &[u64]) -> Option<u64> {
    let count = sizes.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
    count.filter(|&count| count <= LONGEST_TABLE)
}

/// Returns why an operation has no form in ONNX, and what to do.
fn refusal(op: &Op) -> &'static str {
    match op {
        Op::Declared(_) => {
            "functions of `operation!` are known to gpumem alone; write the layer as a formula, or export the network without it"
        }
        Op::CodedProduct(_) => {
            "its weight is quantized; save the weights of the network without `base`, with `copy_merged_from`, and export that"
        }
        Op::CachedAttention(_)
        | Op::CachedScan(_)
        | Op::CachedConvolution(_)
        | Op::CachedRecurrence(_)
        | Op::Positions(_) => {
            "it reads what earlier calls left, and a file of ONNX has one call; export the network of whole sequences"
        }
        _ => {
            "its sizes or its inputs have no form in ONNX; write it with other layers, or export the network without it"
        }
    }
}

impl Writer<'_> {
    /// Writes what a node computes, and returns its name.
    fn value(&mut self, id: NodeId) -> String {
        let graph = self.graph;
        let node = &graph.nodes[id];
        self.place = graph.rows.get(node.row).map_or(String::new(), |row| torch_name(&row.path));
        match &node.source {
            Source::Input => self.unique("input"),
            Source::Parameter(parameter) => torch_name(&graph.parameters[*parameter].name),
            Source::View(input) => {
                let (name, own) = (self.names[*input].clone(), self.dims(*input));
                self.reshape(&name, &own, node.value.batched, node.value.shape.dims())
            }
            Source::Op { op, inputs, buffers, .. } => match self.operation(id, op, inputs, buffers) {
                Some(name) => name,
                None => {
                    let first = (0, self.place.clone(), refusal(op));
                    self.unknown.entry(op.name()).or_insert(first).0 += 1;
                    String::new()
                }
            },
        }
    }

    /// Writes an operation. `None` if it has no form in ONNX.
    fn operation(&mut self, id: NodeId, op: &Op, inputs: &[NodeId], buffers: &[usize]) -> Option<String> {
        let value = self.graph.nodes[id].value;
        // Values without elements are of damaged networks.
        if value.shape.dims().contains(&0) {
            return None;
        }
        let made = self
            .layer(id, op, inputs, buffers)
            .or_else(|| self.movement(id, op, inputs))
            .or_else(|| self.of_places(id, op, inputs))
            .or_else(|| self.of_positions(id, op, inputs))?;
        Some(self.reshape(&made.0, &made.1, value.batched, value.shape.dims()))
    }

    fn unique(&mut self, name: &str) -> String {
        let count = self.used.entry(name.to_string()).or_insert(0);
        *count += 1;
        if *count == 1 { name.to_string() } else { format!("{name}_{}", *count - 1) }
    }

    /// Adds an operation of one output, and returns its name.
    fn add(&mut self, op: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        let name = self.unique(&format!("/{}/{op}", self.place));
        let output = format!("{name}_output");
        self.nodes.push(NodeProto {
            op_type: Some(op.into()),
            name: Some(name),
            input: inputs.iter().map(|input| (*input).to_string()).collect(),
            output: vec![output.clone()],
            attribute: attributes,
            ..NodeProto::default()
        });
        output
    }

    /// Returns a few integers as a constant.
    fn integers(&mut self, numbers: &[i64]) -> String {
        let name = format!("/integers{numbers:?}").replace(' ', "");
        self.indices(name, &[numbers.len() as u64], || numbers.to_vec())
    }

    /// Returns numbers as a constant of this shape.
    fn numbers(&mut self, numbers: &[f32], shape: &[u64]) -> String {
        let name = match numbers {
            [one] => format!("/number({one:?}){shape:?}").replace(' ', ""),
            _ => self.unique("/numbers"),
        };
        self.constant(name, shape, || numbers.to_vec())
    }

    /// Returns numbers as a constant of this name, which is made once.
    fn constant(&mut self, name: String, shape: &[u64], numbers: impl FnOnce() -> Vec<f32>) -> String {
        if !self.constants.contains_key(&name) {
            let bytes: Vec<u8> = numbers().into_iter().flat_map(f32::to_le_bytes).collect();
            let tensor = TensorProto {
                name: Some(name.clone()),
                data_type: Some(1),
                dims: ints(shape.iter().copied()),
                raw_data: Some(bytes.into()),
                ..TensorProto::default()
            };
            self.constants.insert(name.clone(), tensor);
        }
        name
    }

    /// Returns integers as a constant of this name, which is made once.
    fn indices(&mut self, name: String, shape: &[u64], numbers: impl FnOnce() -> Vec<i64>) -> String {
        if !self.constants.contains_key(&name) {
            let tensor = TensorProto {
                name: Some(name.clone()),
                data_type: Some(7),
                dims: ints(shape.iter().copied()),
                int64_data: numbers(),
                ..TensorProto::default()
            };
            self.constants.insert(name.clone(), tensor);
        }
        name
    }

    /// Returns one number.
    fn number(&mut self, number: f64) -> String {
        self.numbers(&[number as f32], &[])
    }

    /// Changes the shape of a value that has the shape `own`.
    fn reshape(&mut self, value: &str, own: &[u64], batched: bool, shape: &[u64]) -> String {
        if own == shape {
            return value.to_string();
        }
        let made = self.shaped(value, batched, shape);
        if !self.reshaped.contains_key(value) {
            self.reshaped.entry(made.clone()).or_insert_with(|| (value.to_string(), own.to_vec()));
        }
        made
    }

    /// Changes the shape of a value. The batch stays as it is. Of several changes the last one is left.
    fn shaped(&mut self, value: &str, batched: bool, shape: &[u64]) -> String {
        let first = self.reshaped.get(value).cloned();
        let source = match &first {
            Some((source, own)) if own == shape => return source.clone(),
            Some((source, _)) => source,
            None => value,
        };
        let mut sizes = ints(shape.iter().copied());
        if batched {
            sizes.insert(0, 0);
        }
        let sizes = self.integers(&sizes);
        let made = self.add("Reshape", &[source, &sizes], Vec::new());
        if let Some(first) = first {
            self.reshaped.insert(made.clone(), first);
        }
        made
    }

    /// Returns the shape of a node's value, without the batch.
    fn dims(&self, id: NodeId) -> Vec<u64> {
        self.graph.nodes[id].value.shape.dims().to_vec()
    }

    fn is_batched(&self, id: NodeId) -> bool {
        self.graph.nodes[id].value.batched
    }

    /// Returns a value in this shape.
    fn as_shape(&mut self, id: NodeId, shape: &[u64]) -> String {
        let name = self.names[id].clone();
        if self.dims(id) == shape { name } else { self.shaped(&name, self.is_batched(id), shape) }
    }
}
