//! The weights of a model, as the network that it becomes reads them: for a file of safetensors, or one by one.

mod numbers;
mod plan;

pub use numbers::to_f32;
pub use plan::Plan;

use crate::error::Error;
use crate::model::{Data, Dtype, Model, State, StateKind};
use crate::read::onnx::{self, Onnx};
use crate::read::pt2::{self, Pt2};
use safetensors::tensor::{Dtype as Stored, View};
use std::borrow::Cow;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// The tensors of a network in the file of its model. One at a time is in memory.
pub struct Tensors {
    path: PathBuf,
    all: Vec<Tensor>,
    elements: Elements,
}

/// A tensor of a network.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The name, as files of PyTorch have it.
    pub name: String,
    /// The type of the elements.
    pub dtype: Dtype,
    /// The shape in the network.
    pub shape: Vec<u64>,
    stored: Stored,
    /// The shape as addresses of memory have it.
    dims: Vec<usize>,
    bytes: usize,
    origin: Origin,
}

/// The place of the elements of a tensor.
#[derive(Clone, Debug)]
enum Origin {
    /// In the file, under a key. A matrix of so many columns is transposed.
    File { key: String, columns: Option<usize> },
    /// In memory.
    Memory(Data),
}

/// The elements of a file, whatever its format.
enum Elements {
    Pt2(pt2::Elements),
    Onnx(Box<onnx::Elements>),
}

impl Elements {
    /// Reads a tensor of `bytes` bytes, row by row as the state dict has it.
    fn read(&mut self, key: &str, bytes: usize) -> Result<Vec<u8>, Error> {
        match self {
            Elements::Pt2(elements) => elements.read(key, bytes),
            Elements::Onnx(elements) => elements.read(key, bytes),
        }
    }
}

impl Tensors {
    /// Opens the parameters and running statistics of a model. Tied tensors are there once, under the name that the network has, or of the
    /// first one.
    ///
    /// `is_for_inference` is that of [`open`](crate::open).
    ///
    /// # Errors
    /// The model cannot be read, or it has parameters that are no floating-point numbers.
    pub fn open(path: &Path, plan: &Plan, is_for_inference: bool) -> Result<Tensors, Error> {
        let (model, elements) = match crate::is_archive(path)? {
            true => {
                let file = Pt2::open(path)?;
                (file.model(None, &[])?, Elements::Pt2(file.elements()?))
            }
            false => {
                let (model, elements) = Onnx::open(path)?.for_inference(is_for_inference).elements()?;
                (model, Elements::Onnx(Box::new(elements)))
            }
        };
        let loaded =
            model.state.iter().enumerate().filter(|(_, state)| state.tied_to.is_none() && is_loaded(state, plan));
        let read = |(index, _)| tensor(index, &model, path, plan);
        let mut all = loaded.map(read).collect::<Result<Vec<Tensor>, Error>>()?;
        all.extend(plan.tables.iter().map(|(key, shape, numbers)| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|&number| (number as f32).to_le_bytes()).collect();
            Tensor {
                name: plan.name(key),
                dtype: Dtype::F32,
                shape: shape.clone(),
                stored: Stored::F32,
                dims: shape.iter().map(|&dim| dim as usize).collect(),
                bytes: bytes.len(),
                origin: Origin::Memory(Data(bytes.into())),
            }
        }));
        Ok(Tensors { path: path.into(), all, elements })
    }

    /// Returns the tensors, in the order of the model.
    pub fn all(&self) -> &[Tensor] {
        &self.all
    }

    /// Returns the bytes of the longest tensor.
    pub fn largest(&self) -> u64 {
        self.all.iter().map(|tensor| tensor.bytes as u64).max().unwrap_or(0)
    }

    /// Reads the elements of a tensor of the network as f32, the low byte first.
    ///
    /// # Errors
    /// The file has no such tensor, one of another shape, or is damaged.
    pub fn read_f32(&mut self, name: &str, shape: &[u64]) -> Result<Vec<u8>, Error> {
        let Some(tensor) = self.all.iter().find(|tensor| tensor.name == name) else {
            return Err(Error::new(&self.path, format!("has no tensor for `{name}`")));
        };
        if tensor.shape != shape {
            let what = format!("has `{name}` of shape {:?}, and the network has {shape:?}", tensor.shape);
            return Err(Error::new(&self.path, what));
        }
        let raw = read(&mut self.elements, tensor)?;
        to_f32(tensor.dtype, &raw).ok_or_else(|| Error::new(&self.path, format!("has `{name}` as {}", tensor.dtype)))
    }

    /// Writes all tensors as safetensors, and returns their number. A file that exists is replaced.
    ///
    /// # Errors
    /// The model has no weights or is damaged, or the output cannot be written: then no file is left.
    pub fn write(mut self, output: &Path) -> Result<usize, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::new(output, format!("cannot be written: {error}"));
        let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let part = crate::write::temporary(folder).map_err(|error| failed(&error))?;
        let source = RefCell::new(Source { elements: &mut self.elements, failed: None });
        let named = self.all.iter().map(|tensor| (tensor.name.clone(), Lazy { tensor, source: &source }));
        let written = safetensors::serialize_to_file(named, None, part.path());
        // The first error explains those that come after it.
        if let Some(error) = source.into_inner().failed {
            return Err(error);
        }
        written.map_err(|error| failed(&error))?;
        part.persist(output).map_err(|error| failed(&error))?;
        Ok(self.all.len())
    }
}

/// Reads the elements of a tensor, row by row as the network has it.
fn read(elements: &mut Elements, tensor: &Tensor) -> Result<Vec<u8>, Error> {
    match &tensor.origin {
        Origin::Memory(data) => Ok(data.0.to_vec()),
        Origin::File { key, columns } => {
            let bytes = elements.read(key, tensor.bytes)?;
            Ok(match columns {
                Some(columns) => transposed(&bytes, *columns, tensor.dtype.bytes() as usize),
                None => bytes,
            })
        }
    }
}

/// Returns the elements of a matrix column by column. An element has `width` bytes.
pub(crate) fn transposed(bytes: &[u8], columns: usize, width: usize) -> Vec<u8> {
    let rows = bytes.len() / (columns * width).max(1);
    let mut turned = Vec::with_capacity(bytes.len());
    for column in 0..columns {
        for row in 0..rows {
            let first = (row * columns + column) * width;
            turned.extend_from_slice(&bytes[first..first + width]);
        }
    }
    turned
}

/// A file that is read, and the first error of it.
struct Source<'e> {
    elements: &'e mut Elements,
    failed: Option<Error>,
}

/// A tensor that is read when it is written.
struct Lazy<'t, 'e> {
    tensor: &'t Tensor,
    source: &'t RefCell<Source<'e>>,
}

impl View for Lazy<'_, '_> {
    fn dtype(&self) -> Stored {
        self.tensor.stored
    }

    fn shape(&self) -> &[usize] {
        &self.tensor.dims
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let source = &mut *self.source.borrow_mut();
        if source.failed.is_none() {
            match read(source.elements, self.tensor) {
                Ok(bytes) => return Cow::Owned(bytes),
                Err(error) => source.failed = Some(error),
            }
        }
        // The file is discarded after an error.
        Cow::Owned(vec![0; self.tensor.bytes])
    }

    fn data_len(&self) -> usize {
        self.tensor.bytes
    }
}

/// True for what a network loads: parameters, the running statistics of BatchNorm, and other buffers that it has as parameters.
fn is_loaded(state: &State, plan: &Plan) -> bool {
    let is_statistic = || state.key.ends_with("running_mean") || state.key.ends_with("running_var");
    match state.kind {
        StateKind::Parameter { .. } => true,
        StateKind::Buffer { .. } => is_statistic() || plan.has(&state.key),
        StateKind::Constant => plan.has(&state.key),
    }
}

/// Returns the key of a state by which the network has it: its own, or that of a state that is tied to it.
fn key<'m>(index: usize, model: &'m Model, plan: &Plan) -> &'m str {
    let own = &model.state[index].key;
    let tied = model.state.iter().filter(|state| state.tied_to == Some(index));
    let named = tied.map(|state| &state.key).find(|key| plan.has(key)).filter(|_| !plan.has(own));
    named.unwrap_or(own)
}

fn tensor(index: usize, model: &Model, path: &Path, plan: &Plan) -> Result<Tensor, Error> {
    let (state, key) = (&model.state[index], key(index, model, plan));
    let value = &model.values[state.value];
    let stored = match value.dtype {
        Dtype::F32 => Stored::F32,
        Dtype::F16 => Stored::F16,
        Dtype::Bf16 => Stored::BF16,
        Dtype::F64 => Stored::F64,
        other => {
            return Err(Error::new(
                path,
                format!("has `{}` as {other}; only floating-point weights are loaded", state.key),
            ));
        }
    };
    let name = plan.name(key);
    let size = |size: u64| usize::try_from(size).ok();
    let bytes = value.elements().and_then(|elements| elements.checked_mul(value.dtype.bytes())).and_then(size);
    let columns = match value.shape[..] {
        [_, columns] if plan.is_transposed(key) => size(columns),
        _ => None,
    };
    let shape = if columns.is_some() { value.shape.iter().rev().copied().collect() } else { value.shape.clone() };
    let shape = plan.shape(&name, shape);
    let dims = shape.iter().copied().map(size).collect::<Option<Vec<usize>>>();
    let (Some(bytes), Some(dims)) = (bytes, dims) else {
        return Err(Error::new(path, format!("has `{}` with more bytes than memory has addresses", state.key)));
    };
    // A buffer that is no part of the state dict has its elements elsewhere in the file, from where they were read.
    let origin = match &state.data {
        Some(data)
            if !matches!(state.kind, StateKind::Parameter { .. }) && columns.is_none() && data.0.len() == bytes =>
        {
            Origin::Memory(data.clone())
        }
        _ => Origin::File { key: state.key.clone(), columns },
    };
    Ok(Tensor { name, dtype: value.dtype, shape, stored, dims, bytes, origin })
}
