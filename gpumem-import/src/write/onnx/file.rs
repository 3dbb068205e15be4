//! The parts of an ONNX file that are no operations: attributes, types, tensors, and the bytes on the disk.

use super::{Tensors, Writer, data_file};
use crate::error::Error;
use crate::read::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, attribute_proto::AttributeType, tensor_shape_proto, type_proto,
};
use gpumem_core::graph::{Elements, NodeId};
use gpumem_core::network::torch_name;
use prost::Message;
use std::collections::BTreeSet;
use std::io::{Error as IoError, Write};
use std::path::Path;
use tempfile::NamedTempFile;

/// The version of the operations that are written.
const OPSET: i64 = 20;

/// Returns sizes as integers of ONNX.
pub(super) fn ints(sizes: impl IntoIterator<Item = u64>) -> Vec<i64> {
    sizes.into_iter().map(|size| size as i64).collect()
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(kind as i32), ..AttributeProto::default() }
}

pub(super) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, AttributeType::Int) }
}

pub(super) fn list(name: &str, values: impl IntoIterator<Item = u64>) -> AttributeProto {
    AttributeProto { ints: ints(values), ..attribute(name, AttributeType::Ints) }
}

pub(super) fn float(name: &str, value: f64) -> AttributeProto {
    AttributeProto { f: Some(value as f32), ..attribute(name, AttributeType::Float) }
}

pub(super) fn text(name: &str, value: &'static str) -> AttributeProto {
    AttributeProto { s: Some(value.as_bytes().into()), ..attribute(name, AttributeType::String) }
}

pub(super) fn texts(name: &str, values: &[&'static str]) -> AttributeProto {
    let strings = values.iter().map(|value| value.as_bytes().into()).collect();
    AttributeProto { strings, ..attribute(name, AttributeType::Strings) }
}

pub(super) fn body(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(graph), ..attribute(name, AttributeType::Graph) }
}

/// Describes a value of f32 inside of a body, whose shape is left open.
pub(super) fn inner(name: &str) -> ValueInfoProto {
    let tensor = type_proto::Tensor { elem_type: Some(1), shape: None };
    let kind = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: Some(name.into()), r#type: Some(kind), ..ValueInfoProto::default() }
}

/// Collects the names that nodes read, those in their bodies among them.
fn read_by(node: &NodeProto, names: &mut BTreeSet<String>) {
    names.extend(node.input.iter().cloned());
    for body in node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()) {
        body.node.iter().for_each(|node| read_by(node, names));
        names.extend(body.output.iter().filter_map(|output| output.name.clone()));
    }
}

impl Writer<'_> {
    /// Describes a value with its type and shape.
    pub(super) fn described(&self, id: NodeId, name: &str) -> ValueInfoProto {
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

    /// Writes the file, and the second one if tensors have more than `most` bytes together. A file is complete, or it is not there.
    pub(super) fn finish(
        mut self,
        mut file: GraphProto,
        tensors: &mut Tensors<'_>,
        path: &Path,
        most: u64,
    ) -> Result<(), Error> {
        let mut read: BTreeSet<String> = file.output.iter().filter_map(|output| output.name.clone()).collect();
        // Nodes come before those that read them.
        let mut nodes: Vec<NodeProto> = std::mem::take(&mut self.nodes).into_iter().rev().collect();
        nodes.retain(|node| {
            let is_read = node.output.iter().any(|output| read.contains(output));
            if is_read {
                read_by(node, &mut read);
            }
            is_read
        });
        nodes.reverse();
        let failed = |path: &Path, error: IoError| Error::new(path, format!("cannot be written: {error}"));
        let beside = data_file(path);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let temporary = |target: &Path| crate::write::temporary(folder).map_err(|error| failed(target, error));
        let mut data = if self.total(&read) > most { Some(temporary(&beside)?) } else { None };
        file.initializer = self.stored(tensors, path, &read, (data.as_mut(), &beside))?;
        file.initializer.extend(self.constants.into_iter().filter(|(name, _)| read.contains(name)).map(|(_, it)| it));
        file.node = nodes;
        let document = ModelProto {
            ir_version: Some(9),
            opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(OPSET) }],
            producer_name: Some("gpumem".into()),
            producer_version: Some(env!("CARGO_PKG_VERSION").into()),
            graph: Some(file),
            ..ModelProto::default()
        };
        let mut whole = temporary(path)?;
        whole.write_all(&document.encode_to_vec()).map_err(|error| failed(path, error))?;
        if let Some(data) = data {
            keep(data, &beside)?;
        }
        keep(whole, path)
    }

    /// Returns the tensors of the network that are read, with their dimensions.
    fn tensors(&self, read: &BTreeSet<String>) -> Vec<(String, Vec<u64>)> {
        let parameters = self.graph.parameters.iter().map(|parameter| (torch_name(&parameter.name), parameter.shape));
        let buffers = self.graph.buffers.iter().map(|buffer| (torch_name(&buffer.name), buffer.shape));
        let all = parameters.chain(buffers).filter(|(name, _)| read.contains(name));
        all.map(|(name, shape)| (name, shape.dims().to_vec())).collect()
    }

    /// Returns the bytes of all tensors that are read.
    fn total(&self, read: &BTreeSet<String>) -> u64 {
        let elements =
            |dims: &[u64]| dims.iter().try_fold(4u64, |product, &size| product.checked_mul(size)).unwrap_or(u64::MAX);
        let tensors = self.tensors(read);
        tensors.iter().map(|(_, dims)| elements(dims)).fold(0, u64::saturating_add)
    }

    /// Reads all tensors that are needed, one after the other. Missing ones are listed at once.
    fn stored(
        &self,
        tensors: &mut Tensors<'_>,
        path: &Path,
        read: &BTreeSet<String>,
        (mut data, beside): (Option<&mut NamedTempFile>, &Path),
    ) -> Result<Vec<TensorProto>, Error> {
        let (mut stored, mut errors, mut offset) = (Vec::new(), Vec::new(), 0u64);
        for (name, dims) in self.tensors(read) {
            let raw = match tensors(&name, &dims) {
                Ok(raw) => raw,
                Err(error) => {
                    errors.push(error.what);
                    continue;
                }
            };
            let mut tensor =
                TensorProto { name: Some(name), data_type: Some(1), dims: ints(dims), ..TensorProto::default() };
            match &mut data {
                Some(data) => {
                    let written = data.write_all(&raw);
                    written.map_err(|error| Error::new(beside, format!("cannot be written: {error}")))?;
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

/// Gives a complete file its name.
fn keep(file: NamedTempFile, path: &Path) -> Result<(), Error> {
    let kept = file.persist(path).map_err(|error| error.error);
    kept.map(|_| ()).map_err(|error| Error::new(path, format!("cannot be written: {error}")))
}
