//! Tensors of a safetensors file, read one at a time.

use crate::error::Error;
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

    /// Returns the elements of a tensor as f32, the low byte first.
    ///
    /// # Errors
    /// Says which tensor is missing, has another shape, or another type than f32, f16, bf16 and f64.
    pub fn tensor(&mut self, key: &str, shape: &[u64]) -> Result<Vec<u8>, Error> {
        let refuse = |path: &Path, what: String| Err(Error::new(path, what));
        let Some(entry) = self.entries.get(key) else { return refuse(&self.path, format!("has no tensor `{key}`")) };
        if entry.shape != shape {
            return refuse(
                &self.path,
                format!("has `{key}` of shape {:?}, and the network has {shape:?}", entry.shape),
            );
        }
        let elements = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
        let size = match &entry.dtype[..] {
            "F32" => 4,
            "F64" => 8,
            "F16" | "BF16" => 2,
            other => return refuse(&self.path, format!("has `{key}` as {other}; F32, F16, BF16 and F64 are written")),
        };
        let [start, end] = entry.data_offsets;
        let first = self.span[0].checked_add(start);
        let bytes = elements
            .and_then(|elements| elements.checked_mul(size))
            .filter(|&bytes| end.checked_sub(start) == Some(bytes));
        let is_inside =
            |bytes: u64| first.and_then(|first| first.checked_add(bytes)).is_some_and(|last| last <= self.span[1]);
        let (Some(first), Some(bytes)) = (first, bytes.filter(|&bytes| is_inside(bytes))) else {
            return refuse(&self.path, format!("has `{key}` outside of the file; write it again"));
        };
        let mut raw = Vec::new();
        let read =
            self.file.seek(SeekFrom::Start(first)).and_then(|_| (&mut self.file).take(bytes).read_to_end(&mut raw));
        if read.is_err() || raw.len() as u64 != bytes {
            return refuse(&self.path, format!("ends inside of `{key}`; write it again"));
        }
        Ok(match &entry.dtype[..] {
            "F32" => raw,
            "F64" => widened(&raw, |b: [u8; 8]| f64::from_le_bytes(b) as f32),
            "BF16" => widened(&raw, |b: [u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)),
            _ => widened(&raw, |b: [u8; 2]| half(u16::from_le_bytes(b))),
        })
    }
}

fn widened<const N: usize>(raw: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<u8> {
    raw.as_chunks::<N>().0.iter().flat_map(|bytes| number(*bytes).to_le_bytes()).collect()
}

/// Converts a half to f32: exact for every half.
fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, (bits >> 10) & 31, f32::from(bits & 1023) / 1024.0);
    let size = match exponent {
        0 => fraction * 2f32.powi(-14),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        exponent => (1.0 + fraction) * 2f32.powi(i32::from(exponent) - 15),
    };
    if sign == 1 { -size } else { size }
}
