//! Reads the elements of weights, one tensor at a time: from the graph, from the file after it, or from files beside it.

use super::proto::{GraphProto, TensorProto};
use super::tensor::{self, Place};
use super::{Onnx, Transform, Weight};
use crate::error::Error;
use crate::model::Model;
use crate::weights::transposed;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// The tensors of an ONNX file that can be read by their keys.
pub(crate) struct Elements {
    file: Onnx,
    weights: HashMap<String, Weight>,
}

impl Onnx {
    /// Translates the program for the usual batch, and opens its weights.
    pub(crate) fn elements(self) -> Result<(Model, Elements), Error> {
        let (model, weights) = self.translated(None, &[])?;
        let weights = weights.into_iter().map(|weight| (weight.key.clone(), weight)).collect();
        Ok((model, Elements { file: self, weights }))
    }

    /// Reads the elements of a tensor of the state dict, row by row as PyTorch has them, the low byte first.
    ///
    /// # Errors
    /// The bytes are missing, outside of the file's folder, or not as many as the tensor has.
    pub fn read(&self, weight: &Weight) -> Result<Vec<u8>, Error> {
        let refuse = |what: String| Error::new(&self.path, what);
        let Weight { key, initializer, .. } = weight;
        let found = self.document.graph.as_ref().and_then(|graph| stored(graph, initializer));
        let Some(found) = found else {
            return Err(refuse(format!("has no tensor `{initializer}` for `{key}`; export the model again")));
        };
        let whole = tensor::shape(found).and_then(|(dtype, shape)| tensor::bytes(&shape, dtype));
        let width = weight.dtype.bytes();
        let bytes = tensor::bytes(&weight.shape, weight.dtype);
        let (Some(whole), Some(bytes)) = (whole, bytes) else {
            return Err(refuse(format!("has `{key}` with more bytes than memory has addresses")));
        };
        let first = match weight.transform {
            Transform::Gates { first, .. } => first.checked_mul(width),
            Transform::AsIs | Transform::Transposed => (bytes == whole).then_some(0),
        };
        let Some(first) = first.filter(|first| first.checked_add(bytes).is_some_and(|end| end <= whole)) else {
            return Err(refuse(format!("has {whole} bytes in `{initializer}`, and `{key}` has {bytes}")));
        };
        let raw = match tensor::place(found, &self.path).map_err(refuse)? {
            Some(place) if place.length != whole => {
                let what = format!(
                    "has {} bytes for `{initializer}`, whose shape needs {whole}; export it again",
                    place.length
                );
                return Err(refuse(what));
            }
            Some(place) => self.outside(key, &place, first, bytes)?,
            None => self.inside(key, found, whole, first, bytes)?,
        };
        Ok(weight.transform.applied(raw, &weight.shape, width))
    }

    /// Reads a part of a tensor that is in the graph.
    fn inside(&self, key: &str, tensor: &TensorProto, whole: u64, first: u64, bytes: u64) -> Result<Vec<u8>, Error> {
        let raw = tensor::inline(tensor);
        let part = (raw.len() as u64 == whole).then(|| raw.get(first as usize..(first + bytes) as usize)).flatten();
        let what = || {
            format!(
                "has no weights, or is damaged: `{key}` has {} bytes, and its shape needs {whole}; \
                 export the model with `export_params=True`",
                raw.len()
            )
        };
        part.map(<[u8]>::to_vec).ok_or_else(|| Error::new(&self.path, what()))
    }

    /// Reads a part of a tensor whose bytes are outside of the graph.
    fn outside(&self, key: &str, place: &Place, first: u64, bytes: u64) -> Result<Vec<u8>, Error> {
        let name = place.path.file_name().unwrap_or_default().display();
        let refuse = |what: String| Error::new(&self.path, what);
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let Some(path) = place.inside(folder) else {
            let what = format!(
                "has the elements of `{key}` in `{name}`, which is missing, or outside of its folder; put that file beside it"
            );
            return Err(refuse(what));
        };
        let failed = |error: std::io::Error| refuse(format!("has `{key}` in `{name}`, which cannot be read: {error}"));
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let start = place
            .offset
            .checked_add(first)
            .filter(|_| place.offset.checked_add(place.length).is_some_and(|end| end <= length));
        let Some(start) = start else {
            let what =
                format!("has `{key}` beyond the end of `{name}`, which has {length} bytes; copy that file again");
            return Err(refuse(what));
        };
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        let mut raw = Vec::new();
        file.take(bytes).read_to_end(&mut raw).map_err(failed)?;
        match raw.len() as u64 == bytes {
            true => Ok(raw),
            false => Err(refuse(format!("has `{key}` in `{name}`, which ends inside of it; copy that file again"))),
        }
    }
}

impl Elements {
    /// Reads the elements of a tensor of `bytes` bytes, row by row.
    pub(crate) fn read(&mut self, key: &str, bytes: usize) -> Result<Vec<u8>, Error> {
        let Some(weight) = self.weights.get(key) else {
            let what = format!(
                "has no elements of its own for `{key}`; save the weights in Python: \
                 `safetensors.torch.save_file(model.state_dict(), \"model.safetensors\")`"
            );
            return Err(Error::new(&self.file.path, what));
        };
        let raw = self.file.read(weight)?;
        match raw.len() == bytes {
            true => Ok(raw),
            false => {
                let what = format!("has {} bytes for `{key}`, and the model {bytes}; export it again", raw.len());
                Err(Error::new(&self.file.path, what))
            }
        }
    }
}

impl Transform {
    /// Returns the elements as PyTorch has them. `shape` is PyTorch's, and an element has `width` bytes.
    fn applied(self, raw: Vec<u8>, shape: &[u64], width: u64) -> Vec<u8> {
        match self {
            Transform::AsIs => raw,
            // The file has as many columns as PyTorch has rows.
            Transform::Transposed => {
                let columns = shape.first().copied().unwrap_or(1);
                transposed(&raw, columns as usize, width as usize)
            }
            Transform::Gates { order, .. } => {
                let gate = raw.len() / order.len().max(1);
                let gates = order.iter().map(|&gate_in_file| gate_in_file as usize * gate);
                gates.filter_map(|first| raw.get(first..first + gate)).flatten().copied().collect()
            }
        }
    }
}

/// Returns the tensor of a name, in a graph or in the branches of its operations.
fn stored<'g>(graph: &'g GraphProto, name: &str) -> Option<&'g TensorProto> {
    let own = graph.initializer.iter().find(|tensor| tensor.name.as_deref() == Some(name));
    own.or_else(|| {
        let attributes = graph.node.iter().flat_map(|node| &node.attribute);
        attributes.filter_map(|attribute| attribute.g.as_ref()).find_map(|branch| stored(branch, name))
    })
}
