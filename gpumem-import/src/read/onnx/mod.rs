//! Reads ONNX files, whatever wrote them, as a program of ATen operations. Nothing in a file is executed.
//!
//! **Stages.** `wire` reads the file without long tensors. `translate` turns each operation into ATen's, with shapes for a batch of a
//! prime size, so that the batch differs from every other dimension. `compose` puts together what an exporter took apart. Then the
//! batch is set to what is asked for.
//!
//! **Names.** A tensor that has lost its name gets the one that it has in PyTorch by the operation that reads it: see `names`.

mod compose;
mod elements;
mod folded;
mod names;
#[allow(missing_docs, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
pub(crate) mod proto;
mod scope;
mod tensor;
mod translate;
mod wire;

use crate::batch::Batch;
use crate::error::Error;
use crate::fold::{Origin, origins};
use crate::model::{Dtype, Model};
pub(crate) use elements::Elements;
use names::Roles;
use prost::Message;
use proto::{GraphProto, ModelProto};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
pub use tensor::Place;
use tensor::{Dim, described};
use translate::{Sizes, Translated, graph_batch, translate};

/// The first and the last version of the operations that are read.
const OPSETS: std::ops::RangeInclusive<i64> = 9..=26;
/// The batch for which shapes are found. No other dimension is a multiple of it.
const PRIME: u64 = 509;
/// The batch of a model if none is asked for: that of an export for training.
const USUAL: u64 = 2;

/// An ONNX file, read but not yet translated, so that it can be translated for several batch sizes.
pub struct Onnx {
    path: PathBuf,
    document: ModelProto,
    opset: i64,
    roles: Roles,
    is_for_inference: bool,
}

/// A tensor of the state dict, and where the file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// The key in PyTorch's state dict.
    pub key: String,
    /// The name of the tensor in the file.
    pub initializer: String,
    /// The place of the bytes. `None` if they are in the graph itself.
    pub place: Option<Place>,
    /// The type of the elements.
    pub dtype: Dtype,
    /// The shape in PyTorch.
    pub shape: Vec<u64>,
    /// The change from the file's elements to PyTorch's.
    pub transform: Transform,
}

/// A change of the order of elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Transform {
    /// None.
    AsIs,
    /// The file has the transposed matrix.
    Transposed,
    /// The file has several tensors as one, with the gates of a recurrent layer in another order.
    Gates {
        /// The first element of this tensor.
        first: u64,
        /// The place in the file of each gate of PyTorch.
        order: &'static [u64],
    },
}

impl Onnx {
    /// Reads a file. Weights stay where they are.
    ///
    /// # Errors
    /// Refuses files of another format, damaged ones, and those of operations that are older or newer than what is read.
    pub fn open(path: &Path) -> Result<Onnx, Error> {
        let file = File::open(path).map_err(|error| Error::new(path, format!("cannot be opened: {error}")))?;
        let length = file.metadata().map_err(|error| damaged(path, &error.to_string()))?.len();
        Onnx::from_reader(file, length, path)
    }

    /// Reads `length` bytes of something that is not a file. `path` is named in errors, and its folder has external data.
    ///
    /// # Errors
    /// Those of [`Onnx::open`].
    pub fn from_reader(reader: impl Read + Seek, length: u64, path: &Path) -> Result<Onnx, Error> {
        let bytes = wire::read(reader, length).map_err(|error| damaged(path, &error.to_string()))?;
        let document = ModelProto::decode(&bytes[..]).map_err(|error| damaged(path, &error.to_string()))?;
        let Some(graph) = &document.graph else { return Err(damaged(path, "it has no graph")) };
        let version =
            document.opset_import.iter().find(|set| matches!(set.domain.as_deref(), None | Some("" | "ai.onnx")));
        let opset = version.and_then(|set| set.version).unwrap_or(0);
        if !OPSETS.contains(&opset) {
            let what = format!(
                "has operations of version {opset}, and {} to {} are read; export it again with `opset_version=20`",
                OPSETS.start(),
                OPSETS.end()
            );
            return Err(Error::new(path, what));
        }
        let roles = Roles::find(graph);
        Ok(Onnx { path: path.into(), document, opset, roles, is_for_inference: false })
    }

    /// Reads the model for inference: BatchNorm may be part of the convolutions.
    pub fn for_inference(mut self, is_for_inference: bool) -> Onnx {
        self.is_for_inference = is_for_inference;
        self
    }

    /// Returns the sizes that the file leaves open, such as a batch size.
    pub fn symbols(&self) -> Vec<String> {
        let inputs = self.document.graph.iter().flat_map(|graph| &graph.input);
        let dims = inputs.filter_map(|input| described(input.r#type.as_ref())).flat_map(|(_, dims)| dims);
        let named = dims.filter_map(|dim| match dim {
            Dim::Named(name) => Some(name),
            Dim::Size(_) => None,
        });
        named.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the name of the first dimension of the first input. `None` if that is a number.
    pub fn batch_symbol(&self) -> Option<String> {
        match graph_batch(self.document.graph.as_ref()?)? {
            Dim::Named(name) => Some(name),
            Dim::Size(_) => None,
        }
    }

    /// Translates the program. `batch` and `others` set sizes that the file leaves open. A file of one sample is read for any batch; one
    /// of several keeps its batch: see [`Model::batch`].
    ///
    /// # Errors
    /// Refuses open sizes without a value, operations that are not read, and BatchNorm as part of convolutions unless the model is
    /// [for inference](Onnx::for_inference).
    pub fn model(&self, batch: Option<u64>, others: &[(&str, u64)]) -> Result<Model, Error> {
        Ok(self.translated(batch, others)?.0)
    }

    /// Returns the tensors of the state dict, and where the file has them. `others` sets sizes that the file leaves open.
    ///
    /// # Errors
    /// Those of [`Onnx::model`].
    pub fn weights(&self, others: &[(&str, u64)]) -> Result<Vec<Weight>, Error> {
        Ok(self.translated(None, others)?.1)
    }

    fn translated(&self, batch: Option<u64>, others: &[(&str, u64)]) -> Result<(Model, Vec<Weight>), Error> {
        let Some(graph) = &self.document.graph else { return Err(damaged(&self.path, "it has no graph")) };
        if !self.is_for_inference {
            folded::check(graph, &self.path)?;
        }
        let mut sizes = Sizes::new();
        let symbols = self.symbols();
        for (name, size) in others {
            if !symbols.iter().any(|symbol| symbol == name) {
                return Err(Error::new(&self.path, format!("has no size `{name}`; it has {symbols:?}")));
            }
            sizes.insert((*name).to_string(), *size);
        }
        let (old, is_open) = match graph_batch(graph) {
            Some(Dim::Named(_)) | Some(Dim::Size(1)) => (1, true),
            Some(Dim::Size(size)) => (size, false),
            None => (1, false),
        };
        let asked = if is_open { batch.unwrap_or(USUAL) } else { old };
        let (mut model, weights) = match is_open {
            false => self.at(graph, old, old, sizes)?,
            true => match self.widened(graph, asked, &sizes) {
                Ok(Some(found)) => found,
                // The batch cannot be followed, so that shapes are found for it at once.
                Ok(None) => self.at(graph, asked, old, sizes)?,
                Err(error) => self.at(graph, asked, old, sizes).map_err(|_| error)?,
            },
        };
        model.has_symbolic_batch = is_open;
        Ok((model, weights))
    }

    /// Translates for a prime batch, and sets it afterwards. `None` if an operation mixes samples.
    fn widened(&self, graph: &GraphProto, asked: u64, sizes: &Sizes) -> Result<Option<(Model, Vec<Weight>)>, Error> {
        let (model, weights) = self.at(graph, PRIME, 1, sizes.clone())?;
        let Some(batch) = Batch::follow(&model) else { return Ok(None) };
        let origins = origins(&model);
        let is_shared = |&index: &usize| {
            model.nodes[index].outputs.iter().all(|&output| !matches!(origins[output], Origin::Sample))
        };
        let is_whole = batch.mixing.iter().all(is_shared);
        let resized = batch.resized(&model, asked).filter(|_| is_whole && asked > 0);
        Ok(resized.map(|resized| (resized, weights)))
    }

    fn at(&self, graph: &GraphProto, batch: u64, old: u64, mut sizes: Sizes) -> Result<(Model, Vec<Weight>), Error> {
        if let Some(name) = self.batch_symbol() {
            sizes.insert(name, batch);
        }
        let Translated { mut model, weights } = translate(self, graph, batch, old, &sizes)?;
        compose::compose(&mut model);
        model.source = self.source();
        model.batch = model.inputs.first().and_then(|&input| model.values[input].shape.first().copied());
        Ok((model, weights))
    }

    fn source(&self) -> String {
        let producer =
            self.document.producer_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("an unnamed exporter");
        let version = self.document.producer_version.as_deref().unwrap_or("");
        let producer = if producer == "pytorch" { "PyTorch" } else { producer };
        format!("ONNX opset {}, {producer} {version}", self.opset).trim_end().to_string()
    }
}

fn damaged(path: &Path, what: &str) -> Error {
    Error::new(path, format!("is damaged, or no ONNX file: {what}; copy it again, or export it again"))
}
