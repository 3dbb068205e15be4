//! The zip archive of `torch.export.save`.

use super::schema::{Config, Entry, SymInt};
use crate::error::Error;
use crate::model::Data;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use zip::ZipArchive;
use zip::read::{ArchiveOffset, Config as ZipConfig};

/// The longest record of JSON that is read, in bytes. An operation takes about a kilobyte.
const LONGEST_JSON: u64 = 512 << 20;
/// The longest tensor whose elements are read, in bytes: position tables and masks are shorter.
const LONGEST_TENSOR: u64 = 64 << 20;
/// The most bytes of all tensors that are read.
const MOST_DATA: u64 = 256 << 20;

/// An open archive.
pub(super) struct Archive {
    path: PathBuf,
    zip: ZipArchive<BufReader<File>>,
    /// The folder in which all records are, such as `archive/`.
    prefix: String,
    /// Bytes of tensors that may still be read.
    left: u64,
}

impl Archive {
    pub(super) fn open(path: &Path) -> Result<Archive, Error> {
        let file = File::open(path).map_err(|error| Error::new(path, format!("cannot be opened: {error}")))?;
        // Sample inputs are an archive inside of this one, which a search for the first byte may take for the whole.
        let config = ZipConfig { archive_offset: ArchiveOffset::Known(0) };
        let zip = ZipArchive::with_config(config, BufReader::new(file));
        let zip = zip.map_err(|error| damaged(path, &error.to_string()))?;
        let suffix = "models/model.json";
        let prefix = zip.file_names().find_map(|name| Some(name.ok()?.strip_suffix(suffix)?.to_string()));
        let Some(prefix) = prefix else {
            let is_state = zip.file_names().any(|name| name.is_ok_and(|name| name.ends_with("data.pkl")));
            return Err(Error::new(path, if is_state { STATE_DICT } else { NO_MODEL }));
        };
        Ok(Archive { path: path.into(), zip, prefix, left: MOST_DATA })
    }

    /// Returns the bytes that a record says it has. `None` if there is none of this name.
    pub(super) fn size(&mut self, name: &str) -> Option<u64> {
        let index = self.zip.index_for_name(&format!("{}{name}", self.prefix))?;
        Some(self.zip.by_index_raw(index).ok()?.size())
    }

    /// Reads a record of at most `most` bytes. `None` if there is none of this name.
    pub(super) fn record(&mut self, name: &str, most: u64) -> Result<Option<Vec<u8>>, Error> {
        let full = format!("{}{name}", self.prefix);
        let Some(index) = self.zip.index_for_name(&full) else { return Ok(None) };
        let record = self.zip.by_index(index).map_err(|error| damaged(&self.path, &format!("`{full}`: {error}")))?;
        let mut bytes = Vec::new();
        // A record says itself how long it is, which may be wrong.
        let read = record.take(most + 1).read_to_end(&mut bytes);
        read.map_err(|error| damaged(&self.path, &format!("`{full}`: {error}")))?;
        if bytes.len() as u64 > most {
            let what = format!("`{full}` is longer than {} MiB", most >> 20);
            return Err(damaged(&self.path, &what));
        }
        Ok(Some(bytes))
    }

    /// Reads a record of JSON. `None` if there is none of this name.
    pub(super) fn json<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Error> {
        let Some(bytes) = self.record(name, LONGEST_JSON)? else { return Ok(None) };
        let read = serde_json::from_slice(&bytes);
        read.map(Some).map_err(|error| damaged(&self.path, &format!("`{name}`: {error}")))
    }

    /// Reads a list of tensors. It is empty if the archive has none.
    pub(super) fn config(&mut self, folder: &str) -> Result<Config, Error> {
        Ok(self.json(&format!("data/{folder}/model_{folder}_config.json"))?.unwrap_or_default())
    }

    /// Reads the elements of a tensor of `bytes` bytes. `None` if the archive does not have them, contiguous, or they are too many.
    pub(super) fn tensor(&mut self, folder: &str, entry: &Entry, bytes: u64) -> Result<Option<Data>, Error> {
        if entry.use_pickle || bytes > LONGEST_TENSOR.min(self.left) || !is_contiguous(entry) {
            return Ok(None);
        }
        let name = format!("data/{folder}/{}", entry.path_name);
        let Some(data) = self.record(&name, LONGEST_TENSOR)? else { return Ok(None) };
        if data.len() as u64 != bytes {
            let what = format!("`{name}` has {} bytes, and its tensor {bytes}", data.len());
            return Err(damaged(&self.path, &what));
        }
        self.left -= bytes;
        Ok(Some(Data(data.into())))
    }

    /// Refuses archives whose numbers have the high byte first.
    pub(super) fn check_byte_order(&mut self) -> Result<(), Error> {
        match self.record("byteorder", 16)?.as_deref() {
            None | Some(b"little") => Ok(()),
            Some(_) => Err(Error::new(&self.path, "was written with the big end first; export it on another machine")),
        }
    }
}

fn is_contiguous(entry: &Entry) -> bool {
    let Some(meta) = &entry.tensor_meta else { return false };
    let known = |size: &SymInt| match size {
        SymInt::AsInt(value) => Some(*value),
        SymInt::AsExpr(_) => None,
    };
    let mut expected = 1i64;
    for (size, stride) in meta.sizes.iter().zip(&meta.strides).rev() {
        let (Some(size), Some(stride)) = (known(size), known(stride)) else { return false };
        if size != 1 && stride != expected {
            return false;
        }
        let Some(product) = expected.checked_mul(size) else { return false };
        expected = product;
    }
    meta.sizes.len() == meta.strides.len() && meta.storage_offset.as_ref().is_none_or(|offset| known(offset) == Some(0))
}

const STATE_DICT: &str = "holds weights only, and no operations; export the model itself: \
     `torch.export.save(torch.export.export(model.train(), (torch.randn(2, 3, 224, 224),)), \"model.pt2\")`";
const NO_MODEL: &str = "is an archive without `models/model.json`, so not one of `torch.export.save`; write it with PyTorch 2.8 or later: \
     `torch.export.save(torch.export.export(model.train(), (torch.randn(2, 3, 224, 224),)), \"model.pt2\")`";

pub(super) fn damaged(path: &Path, what: &str) -> Error {
    Error::new(
        path,
        format!("is damaged, or no archive of `torch.export.save`: {what}; copy it again, or export it again"),
    )
}
