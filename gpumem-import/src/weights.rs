//! Writes the weights of a model as safetensors, as the network that it becomes reads them.

use crate::error::Error;
use crate::lift::Lifted;
use crate::lift::layer::Change;
use crate::model::{Dtype, Model, State, StateKind};
use crate::read::pt2::{Elements, Pt2};
use safetensors::tensor::{Dtype as Stored, View};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The differences between a network and the state dict of its model: see [`Plan::new`].
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Names of parameters that are not their keys in the state dict, by key.
    names: HashMap<String, String>,
    /// Keys of matrices that the network has transposed.
    transposed: HashSet<String>,
    /// Shapes in the network, by name. They may have other axes of one element than the state dict.
    shapes: HashMap<String, Vec<u64>>,
    /// Tables of numbers, by name.
    tables: Vec<(String, Vec<u64>, Vec<f64>)>,
}

impl Plan {
    /// Collects the differences. `renamed` are its names with their keys, `shapes` its parameters with their shapes.
    pub fn new<'p>(
        lifted: &Lifted,
        renamed: &[(String, String)],
        shapes: impl IntoIterator<Item = (&'p str, &'p [u64])>,
    ) -> Plan {
        let changed = lifted.layers.iter().flat_map(|layer| layer.changes.iter().map(move |change| (layer, change)));
        let key = |(layer, (name, change)): (&crate::lift::Layer, &(&str, Change))| {
            let Change::Transposed = change;
            layer.keys.iter().find_map(|(other, key)| (other == name).then(|| key.clone()))
        };
        let tables = lifted.tables.iter().map(|table| (table.key.clone(), table.shape.clone(), table.numbers.clone()));
        Plan {
            names: renamed.iter().map(|(name, key)| (key.clone(), dotted(name))).collect(),
            transposed: changed.filter_map(key).collect(),
            shapes: shapes.into_iter().map(|(name, shape)| (dotted(name), shape.to_vec())).collect(),
            tables: tables.collect(),
        }
    }

    fn name(&self, key: &str) -> String {
        self.names.get(key).cloned().unwrap_or_else(|| key.to_string())
    }

    /// Returns the shape of a tensor in the network: the one that is given, unless the network has as many elements in other axes.
    fn shape(&self, name: &str, shape: Vec<u64>) -> Vec<u64> {
        let product = |shape: &[u64]| shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
        let own = self.shapes.get(name).filter(|own| product(own) == product(&shape));
        own.cloned().unwrap_or(shape)
    }
}

/// Returns a name as files of PyTorch have it: `h[0].attn` is `h.0.attn`.
fn dotted(name: &str) -> String {
    name.replace('[', ".").replace(']', "").trim_start_matches('.').to_string()
}

/// The tensor of a file, read when it is written.
struct Lazy<'f> {
    name: String,
    origin: From,
    dtype: Stored,
    shape: Vec<usize>,
    bytes: usize,
    source: &'f RefCell<Source>,
}

/// The place of the elements of a tensor.
enum From {
    /// In the file, under a key. A matrix of so many columns is transposed.
    File { key: String, columns: Option<usize> },
    /// In memory.
    Memory(Vec<u8>),
}

/// A file that is read, and the first error of it.
struct Source {
    elements: Elements,
    failed: Option<Error>,
}

impl View for &Lazy<'_> {
    fn dtype(&self) -> Stored {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let (key, columns) = match &self.origin {
            From::Memory(bytes) => return Cow::Borrowed(bytes),
            From::File { key, columns } => (key, columns),
        };
        let mut source = self.source.borrow_mut();
        if source.failed.is_none() {
            match source.elements.read(key, self.bytes) {
                Ok(bytes) => {
                    return Cow::Owned(match columns {
                        Some(columns) => self.transposed(&bytes, *columns),
                        None => bytes,
                    });
                }
                Err(error) => source.failed = Some(error),
            }
        }
        // The file is discarded after an error.
        Cow::Owned(vec![0; self.bytes])
    }

    fn data_len(&self) -> usize {
        self.bytes
    }
}

impl Lazy<'_> {
    /// Returns the elements of a matrix column by column.
    fn transposed(&self, bytes: &[u8], columns: usize) -> Vec<u8> {
        let width = self.bytes / self.shape.iter().product::<usize>().max(1);
        let rows = self.bytes / (columns * width).max(1);
        let mut turned = Vec::with_capacity(bytes.len());
        for column in 0..columns {
            for row in 0..rows {
                let first = (row * columns + column) * width;
                turned.extend_from_slice(&bytes[first..first + width]);
            }
        }
        turned
    }
}

/// Writes the parameters and running statistics of a `.pt2` file, and returns their number. One tensor at a time is in memory.
///
/// Tied tensors are written once, under the name of the first one. A file that exists is replaced.
///
/// # Errors
/// The model cannot be read, it has no weights, or the output cannot be written: then no file is left.
pub fn write(model: &Path, plan: &Plan, output: &Path) -> Result<usize, Error> {
    if !crate::is_archive(model)? {
        let what = "is of ONNX, whose weights are not written here; save them in Python: \
                    `safetensors.torch.save_file(model.state_dict(), \"model.safetensors\")`";
        return Err(Error::new(model, what));
    }
    let file = Pt2::open(model)?;
    let program = file.model(None, &[])?;
    let source = RefCell::new(Source { elements: file.elements()?, failed: None });
    let saved = program.state.iter().filter(|state| state.tied_to.is_none() && is_loaded(state));
    let mut tensors =
        saved.map(|state| lazy(state, &program, (model, plan), &source)).collect::<Result<Vec<Lazy<'_>>, Error>>()?;
    tensors.extend(plan.tables.iter().map(|(key, shape, numbers)| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|&number| (number as f32).to_le_bytes()).collect();
        let shape = shape.iter().map(|&dim| dim as usize).collect();
        Lazy {
            name: plan.name(key),
            dtype: Stored::F32,
            shape,
            bytes: bytes.len(),
            origin: From::Memory(bytes),
            source: &source,
        }
    }));
    let failed = |error: &dyn std::fmt::Display| Error::new(output, format!("cannot be written: {error}"));
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let part = tempfile::NamedTempFile::new_in(folder).map_err(|error| failed(&error))?;
    let named = tensors.iter().map(|tensor| (tensor.name.clone(), tensor));
    safetensors::serialize_to_file(named, None, part.path()).map_err(|error| failed(&error))?;
    let count = tensors.len();
    drop(tensors);
    if let Some(error) = source.into_inner().failed {
        return Err(error);
    }
    part.persist(output).map_err(|error| failed(&error))?;
    Ok(count)
}

/// True for what a network loads: parameters, and the running statistics of BatchNorm.
fn is_loaded(state: &State) -> bool {
    match state.kind {
        StateKind::Parameter { .. } => true,
        StateKind::Buffer { .. } => state.key.ends_with("running_mean") || state.key.ends_with("running_var"),
        StateKind::Constant => false,
    }
}

fn lazy<'f>(
    state: &State,
    model: &Model,
    (path, plan): (&Path, &Plan),
    source: &'f RefCell<Source>,
) -> Result<Lazy<'f>, Error> {
    let value = &model.values[state.value];
    let dtype = match value.dtype {
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
    let name = plan.name(&state.key);
    let size = |size: u64| usize::try_from(size).ok();
    let bytes = value.elements().and_then(|elements| elements.checked_mul(value.dtype.bytes())).and_then(size);
    let columns = match value.shape[..] {
        [_, columns] if plan.transposed.contains(&state.key) => size(columns),
        _ => None,
    };
    let shape = if columns.is_some() { value.shape.iter().rev().copied().collect() } else { value.shape.clone() };
    let shape = plan.shape(&name, shape).into_iter().map(size).collect::<Option<Vec<usize>>>();
    let (Some(bytes), Some(shape)) = (bytes, shape) else {
        return Err(Error::new(path, format!("has `{}` with more bytes than memory has addresses", state.key)));
    };
    Ok(Lazy { name, dtype, shape, bytes, origin: From::File { key: state.key.clone(), columns }, source })
}
