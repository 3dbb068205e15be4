//! Reads the elements of weights, one tensor at a time.

use super::archive::{Archive, damaged};
use super::schema::{Entry, StoredMeta, SymInt};
use crate::error::Error;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The most bytes of a record for each byte of the tensor in it.
const MOST_AROUND: u64 = 64;

/// The tensors of an archive that can be read by their keys.
pub(crate) struct Elements {
    path: PathBuf,
    archive: Archive,
    entries: HashMap<String, Entry>,
}

impl Elements {
    pub(super) fn open(path: &Path) -> Result<Elements, Error> {
        let mut archive = Archive::open(path)?;
        archive.check_byte_order()?;
        let entries = archive.config("weights")?.config.into_iter().collect();
        Ok(Elements { path: path.into(), archive, entries })
    }

    /// Reads the elements of a tensor of `bytes` bytes, row by row.
    pub(crate) fn read(&mut self, key: &str, bytes: usize) -> Result<Vec<u8>, Error> {
        let none = "has no weights, which an export with `torch.export.save` has; export the model again";
        let Some(entry) = self.entries.get(key) else {
            return Err(Error::new(&self.path, format!("{none} (`{key}` is missing)")));
        };
        if entry.use_pickle {
            let what = format!("has `{key}` as a pickle, which is not read; export the model from plain tensors");
            return Err(Error::new(&self.path, what));
        }
        let name = format!("data/weights/{}", entry.path_name);
        let layout = entry.tensor_meta.as_ref().and_then(Layout::of);
        // A view into a larger tensor has all bytes of that in the file. What is far longer was compressed to be so.
        let most = self.archive.size(&name).unwrap_or(0).min(MOST_AROUND.saturating_mul(bytes as u64));
        let stored = self.archive.record(&name, most)?;
        let Some(stored) = stored else { return Err(Error::new(&self.path, format!("{none} (`{name}` is missing)"))) };
        match layout {
            Some(layout) => layout.gathered(&stored, bytes),
            None => Some(stored).filter(|stored| stored.len() == bytes),
        }
        .ok_or_else(|| damaged(&self.path, &format!("`{name}` is not of the {bytes} bytes that `{key}` has")))
    }
}

/// The places of elements that do not lie row by row.
struct Layout {
    sizes: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
}

impl Layout {
    /// Returns the layout of a tensor. `None` if its elements are all of the record, row by row.
    fn of(meta: &StoredMeta) -> Option<Layout> {
        let known = |size: &SymInt| match size {
            SymInt::AsInt(value) => usize::try_from(*value).ok(),
            SymInt::AsExpr(_) => None,
        };
        let sizes: Vec<usize> = meta.sizes.iter().map(known).collect::<Option<_>>()?;
        let strides: Vec<usize> = meta.strides.iter().map(known).collect::<Option<_>>()?;
        let offset = meta.storage_offset.as_ref().map_or(Some(0), known)?;
        (sizes.len() == strides.len()).then_some(Layout { sizes, strides, offset })
    }

    /// Returns the elements row by row. `None` if one of them lies outside of the record, or their bytes are not `bytes`.
    fn gathered(&self, stored: &[u8], bytes: usize) -> Option<Vec<u8>> {
        let count = self.sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size))?;
        if count == 0 {
            return (bytes == 0).then(Vec::new);
        }
        if bytes > stored.len() {
            return None;
        }
        let width = bytes.checked_div(count).filter(|width| width * count == bytes)?;
        let mut gathered = Vec::with_capacity(bytes);
        let mut index = vec![0; self.sizes.len()];
        loop {
            let along = index.iter().zip(&self.strides);
            let place = along.map(|(index, stride): (&usize, &usize)| index.checked_mul(*stride));
            let place = place.into_iter().try_fold(self.offset, |sum, term| sum.checked_add(term?))?;
            let first = place.checked_mul(width)?;
            gathered.extend_from_slice(stored.get(first..first.checked_add(width)?)?);
            let Some(axis) = (0..index.len()).rev().find(|&axis| index[axis] + 1 < self.sizes[axis]) else { break };
            index[axis] += 1;
            index[axis + 1..].fill(0);
        }
        Some(gathered)
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    #[test]
    fn elements_are_gathered_row_by_row() {
        let stored: Vec<u8> = (0..16).collect();
        let layout = |sizes: &[usize], strides: &[usize], offset| Layout {
            sizes: sizes.into(),
            strides: strides.into(),
            offset,
        };
        // A transposed matrix of 2-byte elements.
        assert_eq!(layout(&[2, 3], &[1, 2], 0).gathered(&stored, 12).unwrap(), [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]);
        assert_eq!(layout(&[2], &[3], 1).gathered(&stored, 2).unwrap(), [1, 4]);
        assert_eq!(layout(&[], &[], 3).gathered(&stored, 4).unwrap(), [12, 13, 14, 15]);
        // Outside of the record, more elements than bytes, and sizes whose product is too large.
        assert_eq!(layout(&[2], &[16], 0).gathered(&stored, 2), None);
        assert_eq!(layout(&[5], &[1], 0).gathered(&stored, 4), None);
        assert_eq!(layout(&[usize::MAX, 2], &[1, 1], 0).gathered(&stored, 4), None);
        // More elements than the record has, of which each is read again and again.
        assert_eq!(layout(&[1 << 40], &[0], 0).gathered(&stored, 1 << 40), None);
        assert_eq!(layout(&[2], &[usize::MAX], 1).gathered(&stored, 2), None);
    }
}
