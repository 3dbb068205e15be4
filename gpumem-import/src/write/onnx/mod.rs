//! Writes a network as an ONNX file for inference, of opset 20 and with an open batch size.
//!
//! Parameters have PyTorch's names. Random zeros are left out, and BatchNorm uses its running statistics. A file whose tensors would be
//! longer than what a message can hold has them in a second file beside it.

mod attention;
mod layers;
mod movement;

use crate::error::Error;
use crate::read::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, attribute_proto::AttributeType, tensor_shape_proto, type_proto,
};
use gpumem_core::graph::{Elements, Graph, NodeId, Source};
use gpumem_core::program::Op;
use prost::Message;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// The version of the operations that are written.
const OPSET: i64 = 20;
/// The most bytes of tensors in a file of its own. A message has at most 2 GiB.
const MOST_INLINE: u64 = 1 << 30;

/// A source of tensors: the elements of a key as f32, for the shape that the network has.
pub type Tensors<'t> = dyn FnMut(&str, &[u64]) -> Result<Vec<u8>, Error> + 't;

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
    let mut writer = Writer {
        graph,
        nodes: Vec::new(),
        constants: BTreeMap::new(),
        names: Vec::new(),
        used: BTreeMap::new(),
        unknown: BTreeMap::new(),
        place: String::new(),
    };
    for id in 0..graph.nodes.len() {
        let name = writer.value(id);
        writer.names.push(name);
    }
    if !writer.unknown.is_empty() {
        let kinds = writer
            .unknown
            .iter()
            .map(|(kind, (count, place))| format!("\n    {kind}, {count} times, first in `{place}`"));
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
        writer.nodes.push(NodeProto {
            op_type: Some("Identity".into()),
            name: Some(format!("Identity_{index}")),
            input: vec![writer.names[output].clone()],
            output: vec![called.clone()],
            ..NodeProto::default()
        });
        file.output.push(writer.described(output, &called));
    }
    file.initializer = writer.stored(tensors, path)?;
    file.initializer.extend(writer.constants.into_values());
    file.node = writer.nodes;
    let document = ModelProto {
        ir_version: Some(9),
        opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(OPSET) }],
        producer_name: Some("gpumem".into()),
        producer_version: Some(env!("CARGO_PKG_VERSION").into()),
        graph: Some(file),
        ..ModelProto::default()
    };
    let written = std::fs::write(path, document.encode_to_vec());
    written.map_err(|error| Error::new(path, format!("cannot be written: {error}")))
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
    /// Operations without a form in ONNX: their number, and the layer of the first one.
    unknown: BTreeMap<String, (usize, String)>,
    /// The layer whose operations are written, as PyTorch names it.
    place: String,
}

/// Returns PyTorch's form of a name: `stage.0.weight` for `stage[0].weight`.
fn key(name: &str) -> String {
    name.replace('[', ".").replace(']', "")
}

/// Returns sizes as integers of ONNX.
fn ints(sizes: impl IntoIterator<Item = u64>) -> Vec<i64> {
    sizes.into_iter().map(|size| size as i64).collect()
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(kind as i32), ..AttributeProto::default() }
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, AttributeType::Int) }
}

fn list(name: &str, values: impl IntoIterator<Item = u64>) -> AttributeProto {
    AttributeProto { ints: ints(values), ..attribute(name, AttributeType::Ints) }
}

fn float(name: &str, value: f64) -> AttributeProto {
    AttributeProto { f: Some(value as f32), ..attribute(name, AttributeType::Float) }
}

fn text(name: &str, value: &'static str) -> AttributeProto {
    AttributeProto { s: Some(value.as_bytes().into()), ..attribute(name, AttributeType::String) }
}

impl Writer<'_> {
    /// Writes what a node computes, and returns its name.
    fn value(&mut self, id: NodeId) -> String {
        let graph = self.graph;
        let node = &graph.nodes[id];
        self.place = graph.rows.get(node.row).map_or(String::new(), |row| key(&row.path));
        match &node.source {
            Source::Input => self.unique("input"),
            Source::Parameter(parameter) => key(&graph.parameters[*parameter].name),
            Source::View(input) => {
                let input = self.names[*input].clone();
                self.shaped(&input, node.value.batched, node.value.shape.dims())
            }
            Source::Op { op, inputs, buffers, .. } => match self.operation(id, op, inputs, buffers) {
                Some(name) => name,
                None => {
                    let entry = self.unknown.entry(op.name().to_string()).or_insert((0, self.place.clone()));
                    entry.0 += 1;
                    String::new()
                }
            },
        }
    }

    /// Writes an operation. `None` if it has no form in ONNX.
    fn operation(&mut self, id: NodeId, op: &Op, inputs: &[NodeId], buffers: &[usize]) -> Option<String> {
        let made = self.layer(id, op, inputs, buffers).or_else(|| self.movement(id, op, inputs))?;
        let value = self.graph.nodes[id].value;
        Some(if made.1[..] == *value.shape.dims() {
            made.0
        } else {
            self.shaped(&made.0, value.batched, value.shape.dims())
        })
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

    /// Returns integers as a constant.
    fn integers(&mut self, numbers: &[i64]) -> String {
        let name = format!("/integers{numbers:?}").replace(' ', "");
        let tensor = TensorProto {
            name: Some(name.clone()),
            data_type: Some(7),
            dims: vec![numbers.len() as i64],
            int64_data: numbers.to_vec(),
            ..TensorProto::default()
        };
        self.constants.entry(name.clone()).or_insert(tensor);
        name
    }

    /// Returns numbers as a constant of this shape.
    fn numbers(&mut self, numbers: &[f32], shape: &[u64]) -> String {
        let name = match numbers {
            [one] => format!("/number({one}){shape:?}").replace(' ', ""),
            _ => self.unique("/numbers"),
        };
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let tensor = TensorProto {
            name: Some(name.clone()),
            data_type: Some(1),
            dims: ints(shape.iter().copied()),
            raw_data: Some(bytes.into()),
            ..TensorProto::default()
        };
        self.constants.entry(name.clone()).or_insert(tensor);
        name
    }

    /// Returns one number.
    fn number(&mut self, number: f64) -> String {
        self.numbers(&[number as f32], &[])
    }

    /// Changes the shape of a value. The batch stays as it is.
    fn shaped(&mut self, value: &str, batched: bool, shape: &[u64]) -> String {
        let mut sizes = ints(shape.iter().copied());
        if batched {
            sizes.insert(0, 0);
        }
        let sizes = self.integers(&sizes);
        self.add("Reshape", &[value, &sizes], Vec::new())
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

    /// Describes a value with its type and shape.
    fn described(&self, id: NodeId, name: &str) -> ValueInfoProto {
        use tensor_shape_proto::{Dimension, dimension::Value};
        let value = self.graph.nodes[id].value;
        let dim = |value: Value| Dimension { value: Some(value), ..Dimension::default() };
        let batch = value.batched.then(|| dim(Value::DimParam("batch".into())));
        let sizes = value.shape.dims().iter().map(|&size| dim(Value::DimValue(size as i64)));
        let kind = match value.elements {
            Elements::Numbers => 1,
            Elements::Indices => 7,
            Elements::Bytes => 2,
        };
        let shape = TensorShapeProto { dim: batch.into_iter().chain(sizes).collect() };
        let tensor = type_proto::Tensor { elem_type: Some(kind), shape: Some(shape) };
        let kind = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
        ValueInfoProto { name: Some(name.into()), r#type: Some(kind), ..ValueInfoProto::default() }
    }

    /// Reads all parameters and running statistics, and writes the second file if they are long. Missing ones are listed at once.
    fn stored(&self, tensors: &mut Tensors<'_>, path: &Path) -> Result<Vec<TensorProto>, Error> {
        let parameters = self.graph.parameters.iter().map(|parameter| (key(&parameter.name), parameter.shape));
        let buffers = self.graph.buffers.iter().map(|buffer| (key(&buffer.name), buffer.shape));
        let all: Vec<_> = parameters.chain(buffers).collect();
        let total: u64 = all.iter().map(|(_, shape)| shape.elements().unwrap_or(0).saturating_mul(4)).sum();
        let failed = |path: &Path, error: std::io::Error| Error::new(path, format!("cannot be written: {error}"));
        let beside = path.with_extension("onnx.data");
        let mut file = match total > MOST_INLINE {
            true => Some(File::create(&beside).map_err(|error| failed(&beside, error))?),
            false => None,
        };
        let (mut stored, mut errors, mut offset) = (Vec::new(), Vec::new(), 0u64);
        for (name, shape) in all {
            let raw = match tensors(&name, shape.dims()) {
                Ok(raw) => raw,
                Err(error) => {
                    errors.push(error.what);
                    continue;
                }
            };
            let mut tensor = TensorProto {
                name: Some(name),
                data_type: Some(1),
                dims: ints(shape.dims().iter().copied()),
                ..TensorProto::default()
            };
            match &mut file {
                Some(file) => {
                    file.write_all(&raw).map_err(|error| failed(&beside, error))?;
                    let location = beside.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
                    let entries =
                        [("location", location), ("offset", offset.to_string()), ("length", raw.len().to_string())];
                    let entry = |(key, value): (&str, String)| StringStringEntryProto {
                        key: Some(key.into()),
                        value: Some(value),
                    };
                    tensor.external_data = entries.into_iter().map(entry).collect();
                    tensor.data_location = Some(1);
                    offset += raw.len() as u64;
                }
                None => tensor.raw_data = Some(raw.into()),
            }
            stored.push(tensor);
        }
        match errors.is_empty() {
            true => Ok(stored),
            false => Err(Error::new(
                path,
                format!("is not written, since tensors are missing:\n    {}", errors.join("\n    ")),
            )),
        }
    }
}
