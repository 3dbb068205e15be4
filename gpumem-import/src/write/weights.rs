//! Tensors of a safetensors file, read one at a time.

use crate::error::Error;
use crate::model::Dtype;
use crate::weights::to_f32;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The longest header that is read, in bytes. A tensor takes about a hundred.
const LONGEST_HEADER: u64 = 100 << 20;

/// A tensor's entry in the header.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// A safetensors file. Tensors stay in it until they are asked for.
pub struct Safetensors {
    path: PathBuf,
    file: File,
    entries: BTreeMap<String, Entry>,
    /// The first byte after the header, and the file's length.
    span: [u64; 2],
}

impl Safetensors {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// Refuses files whose header is damaged.
    pub fn open(path: &Path) -> Result<Safetensors, Error> {
        let damaged =
            |what: &str| Error::new(path, format!("is damaged, or no safetensors file: {what}; write it again"));
        let mut file = File::open(path).map_err(|error| Error::new(path, format!("cannot be opened: {error}")))?;
        let length = file.metadata().map_err(|error| damaged(&error.to_string()))?.len();
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes).map_err(|error| damaged(&error.to_string()))?;
        let header = u64::from_le_bytes(bytes);
        if header > LONGEST_HEADER || header > length.saturating_sub(8) {
            return Err(damaged("its header is longer than the file, or than 100 MiB"));
        }
        let mut text = Vec::new();
        (&mut file).take(header).read_to_end(&mut text).map_err(|error| damaged(&error.to_string()))?;
        let all: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))?;
        let mut entries = BTreeMap::new();
        for (key, entry) in all.into_iter().filter(|(key, _)| key != "__metadata__") {
            let entry = serde_json::from_value(entry).map_err(|error| damaged(&format!("`{key}`: {error}")))?;
            entries.insert(key, entry);
        }
        Ok(Safetensors { path: path.into(), file, entries, span: [8 + header, length] })
    }

    /// Returns the names and the shapes of all tensors.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &[u64])> {
        self.entries.iter().map(|(key, entry)| (&key[..], &entry.shape[..]))
    }

    /// Returns the elements of a tensor as f32, the low byte first.
    ///
    /// # Errors
    /// Says which tensor is missing, has another shape, or another type than f32, f16, bf16 and f64.
    pub fn tensor(&mut self, key: &str, shape: &[u64]) -> Result<Vec<u8>, Error> {
        let entry = self.entry(key)?;
        if entry.shape != shape {
            let what = format!("has `{key}` of shape {:?}, and the network has {shape:?}", entry.shape);
            return Err(Error::new(&self.path, what));
        }
        let what = format!("has `{key}` as {}; F32, F16, BF16 and F64 are written", entry.dtype);
        let (dtype, raw) = self.read(key)?;
        to_f32(dtype, &raw).ok_or_else(|| Error::new(&self.path, what))
    }

    /// Returns the elements of a tensor as they are in the file, with their type.
    ///
    /// # Errors
    /// Says which tensor is missing, outside of the file, or of a type that PyTorch does not have.
    pub fn read(&mut self, key: &str) -> Result<(Dtype, Vec<u8>), Error> {
        let entry = self.entry(key)?;
        let Some(dtype) = dtype(&entry.dtype) else {
            let what = format!("has `{key}` as {}, which is not read; write it as F32 or I64", entry.dtype);
            return Err(Error::new(&self.path, what));
        };
        let elements = entry.shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
        let [start, end] = entry.data_offsets;
        let first = self.span[0].checked_add(start);
        let bytes = elements
            .and_then(|elements| elements.checked_mul(dtype.bytes()))
            .filter(|&bytes| end.checked_sub(start) == Some(bytes));
        let is_inside =
            |bytes: u64| first.and_then(|first| first.checked_add(bytes)).is_some_and(|last| last <= self.span[1]);
        let (Some(first), Some(bytes)) = (first, bytes.filter(|&bytes| is_inside(bytes))) else {
            return Err(Error::new(&self.path, format!("has `{key}` outside of the file; write it again")));
        };
        let mut raw = Vec::new();
        let read =
            self.file.seek(SeekFrom::Start(first)).and_then(|_| (&mut self.file).take(bytes).read_to_end(&mut raw));
        if read.is_err() || raw.len() as u64 != bytes {
            return Err(Error::new(&self.path, format!("ends inside of `{key}`; write it again")));
        }
        Ok((dtype, raw))
    }

    fn entry(&self, key: &str) -> Result<&Entry, Error> {
        self.entries.get(key).ok_or_else(|| Error::new(&self.path, format!("has no tensor `{key}`")))
    }
}

/// Returns the type of this name in safetensors. `None` for those that models do not have.
fn dtype(name: &str) -> Option<Dtype> {
    Some(match name {
        "F32" => Dtype::F32,
        "F64" => Dtype::F64,
        "F16" => Dtype::F16,
        "BF16" => Dtype::Bf16,
        "I64" => Dtype::I64,
        "I32" => Dtype::I32,
        "I16" => Dtype::I16,
        "I8" => Dtype::I8,
        "U8" => Dtype::U8,
        "BOOL" => Dtype::Bool,
        _ => return None,
    })
}
