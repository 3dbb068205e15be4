//! Writes the weights of a model as safetensors, under the names that they have in PyTorch.

use crate::error::Error;
use crate::model::{Dtype, Model, State, StateKind};
use crate::read::pt2::{Elements, Pt2};
use safetensors::tensor::{Dtype as Stored, View};
use std::borrow::Cow;
use std::cell::RefCell;
use std::path::Path;

/// The tensor of a file, read when it is written.
struct Lazy<'f> {
    key: String,
    dtype: Stored,
    shape: Vec<usize>,
    bytes: usize,
    source: &'f RefCell<Source>,
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
        let mut source = self.source.borrow_mut();
        if source.failed.is_none() {
            match source.elements.read(&self.key, self.bytes) {
                Ok(bytes) => return Cow::Owned(bytes),
                Err(error) => source.failed = Some(error),
            }
        }
        // What is written is thrown away.
        Cow::Owned(vec![0; self.bytes])
    }

    fn data_len(&self) -> usize {
        self.bytes
    }
}

/// Writes the parameters and running statistics of a `.pt2` file, and returns their number. One tensor at a time is in memory.
///
/// Tied tensors are written once, under the name of the first one. A file that exists is replaced.
///
/// # Errors
/// The model cannot be read, it has no weights, or the output cannot be written: then no file is left.
pub fn write(model: &Path, output: &Path) -> Result<usize, Error> {
    let file = Pt2::open(model)?;
    let program = file.model(None, &[])?;
    let source = RefCell::new(Source { elements: file.elements()?, failed: None });
    let saved = program.state.iter().filter(|state| state.tied_to.is_none() && is_loaded(state));
    let tensors = saved.map(|state| lazy(state, &program, model, &source)).collect::<Result<Vec<Lazy<'_>>, Error>>()?;
    let failed = |error: &dyn std::fmt::Display| Error::new(output, format!("cannot be written: {error}"));
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let part = tempfile::NamedTempFile::new_in(folder).map_err(|error| failed(&error))?;
    let named = tensors.iter().map(|tensor| (tensor.key.clone(), tensor));
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

fn lazy<'f>(state: &State, model: &Model, path: &Path, source: &'f RefCell<Source>) -> Result<Lazy<'f>, Error> {
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
    let bytes = value.elements().and_then(|elements| elements.checked_mul(value.dtype.bytes()));
    let size = |size: u64| usize::try_from(size).ok();
    let shape = value.shape.iter().map(|&dim| size(dim)).collect::<Option<Vec<usize>>>();
    let (Some(bytes), Some(shape)) = (bytes.and_then(size), shape) else {
        return Err(Error::new(path, format!("has `{}` with more bytes than memory has addresses", state.key)));
    };
    Ok(Lazy { key: state.key.clone(), dtype, shape, bytes, source })
}
