//! Writes a snapshot to a folder on the disk.

use crate::error::Error;
use crate::folder::{self, LATEST, Name, TEMPORARY};
use crate::format::{NUMBERS, Numbers, TENSORS, checksum, dtype, shape};
use gpumem_core::run::state::Snapshot;
use safetensors::tensor::TensorView;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// A request to write a state.
pub(crate) struct WriteRequest {
    pub(crate) folder: PathBuf,
    /// States that are kept; `None` keeps all.
    pub(crate) keep: Option<usize>,
    /// Further marks of the state besides `latest`.
    pub(crate) marks: Vec<String>,
    /// Its numbers, without checksums.
    pub(crate) numbers: Numbers,
}

impl WriteRequest {
    /// Writes a state, sets its marks, and removes states that are not kept. Returns its folder.
    pub(crate) fn write(mut self, snapshot: &Snapshot) -> Result<PathBuf, Error> {
        let name = free_name(&self.folder, self.numbers.steps)?;
        let temporary = tempfile::Builder::new().prefix(TEMPORARY).tempdir_in(&self.folder);
        let temporary = temporary.map_err(|error| Error::system(&self.folder, "written to", &error))?;
        write_tensors(&temporary.path().join(TENSORS), snapshot, &mut self.numbers)?;
        write_numbers(&temporary.path().join(NUMBERS), &self.numbers)?;
        let path = folder::path(&self.folder, name);
        let publish = || {
            folder::sync(temporary.path())?;
            fs::rename(temporary.path(), &path)?;
            folder::sync(&self.folder)
        };
        publish().map_err(|error| Error::system(&path, "written", &error))?;
        let _ = temporary.keep();
        for mark in std::iter::once(LATEST).chain(self.marks.iter().map(String::as_str)) {
            folder::mark(&self.folder, mark, name)?;
        }
        if let Some(keep) = self.keep {
            folder::prune(&self.folder, keep, name)?;
        }
        Ok(path)
    }
}

/// Returns an unused name for a state with so many steps.
fn free_name(folder: &Path, steps: u64) -> Result<Name, Error> {
    let last = folder::states(folder)?.into_iter().filter(|name| name.steps == steps).map(|name| name.again).max();
    let again = match last {
        Some(last) => last.checked_add(1).ok_or_else(|| {
            Error::file(folder, format!("has too many states of step {steps}; remove some, or save to another folder"))
        })?,
        None => 0,
    };
    Ok(Name { steps, again })
}

/// Writes the tensors, and adds their checksums to `numbers`.
fn write_tensors(path: &Path, snapshot: &Snapshot, numbers: &mut Numbers) -> Result<(), Error> {
    let mut views = Vec::new();
    for (tensor, bytes) in snapshot.tensors() {
        let view = TensorView::new(dtype(tensor.format), shape(tensor), bytes);
        let view = view.map_err(|error| Error::file(path, format!("cannot have `{}`: {error}", tensor.name)))?;
        views.push((tensor.name.as_str(), view));
        numbers.tensors.insert(tensor.name.clone(), checksum(bytes));
    }
    let about = HashMap::from([
        ("format".to_string(), "pt".to_string()),
        ("network".to_string(), numbers.network.clone()),
        ("steps".to_string(), numbers.steps.to_string()),
    ]);
    safetensors::serialize_to_file(views, Some(about), path).map_err(|error| match error {
        safetensors::SafeTensorError::IoError(error) => Error::system(path, "written", &error),
        other => Error::file(path, format!("cannot be written ({other})")),
    })?;
    numbers.header = flush(path).map_err(|error| Error::system(path, "written", &error))?;
    Ok(())
}

/// Flushes the file of tensors to the disk, and returns the checksum of its header.
fn flush(path: &Path) -> std::io::Result<String> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    file.sync_all()?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let mut header = length.to_vec();
    file.take(u64::from_le_bytes(length)).read_to_end(&mut header)?;
    Ok(checksum(&header))
}

fn write_numbers(path: &Path, numbers: &Numbers) -> Result<(), Error> {
    let text = numbers.text().map_err(|error| Error::file(path, format!("cannot be written ({error})")))?;
    let write = || -> std::io::Result<()> {
        let mut file = File::create_new(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| Error::system(path, "written", &error))
}
