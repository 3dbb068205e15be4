//! Tensors of mapped files: their types, and access to their elements.

use crate::error::Error;
use gpumem_core::number::Half;
use memmap2::Mmap;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The element type of a tensor in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F16,
    Bf16,
    F64,
    /// Whole numbers of 8 bytes, as `num_batches_tracked` has them.
    I64,
    /// A type that parameters cannot have, with its name and the bytes of an element.
    Other(&'static str, u64),
}

impl Kind {
    /// Returns the bytes of an element.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Kind::F16 | Kind::Bf16 => 2,
            Kind::F32 => 4,
            Kind::F64 | Kind::I64 => 8,
            Kind::Other(_, bytes) => bytes,
        }
    }

    /// Returns its name, as safetensors writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::F32 => "F32",
            Kind::F16 => "F16",
            Kind::Bf16 => "BF16",
            Kind::F64 => "F64",
            Kind::I64 => "I64",
            Kind::Other(name, _) => name,
        }
    }

    /// True if a parameter may be read from it.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Kind::F32 | Kind::F16 | Kind::Bf16 | Kind::F64)
    }

    /// Returns the number that these bytes encode; 0 if the type is no float.
    fn number(self, bytes: &[u8]) -> f32 {
        match (self, bytes) {
            (Kind::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (Kind::F16, &[a, b]) => Half::F16.widen(u16::from_le_bytes([a, b])),
            (Kind::Bf16, &[a, b]) => Half::Bf16.widen(u16::from_le_bytes([a, b])),
            (Kind::F64, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32,
            _ => 0.0,
        }
    }
}

/// A view of a tensor in a file: every element is inside the map, which [`View::new`] has checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct View {
    /// The number of the map among those of [`Source`].
    file: usize,
    pub(crate) kind: Kind,
    /// The byte offset of the first element.
    start: u64,
    pub(crate) shape: Vec<u64>,
    /// Elements from one index of an axis to the next.
    strides: Vec<u64>,
}

/// The most dimensions of a tensor: PyTorch and numpy have no more.
pub(crate) const MOST_DIMENSIONS: usize = 64;

/// Returns the product of the dimensions; `None` if it exceeds 64 bits.
pub(crate) fn elements(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim))
}

impl View {
    /// Returns a view of the bytes `range` of a map, whose first element is element `offset` of them. `strides` are dense if they are
    /// `None`.
    pub(crate) fn new(
        (file, kind): (usize, Kind),
        range: [u64; 2],
        offset: u64,
        shape: Vec<u64>,
        strides: Option<Vec<u64>>,
    ) -> Result<View, String> {
        if shape.len() > MOST_DIMENSIONS {
            return Err(format!("it has {} dimensions, and at most {MOST_DIMENSIONS} are read", shape.len()));
        }
        let large = || "its shape exceeds 64 bits".to_string();
        let count = elements(&shape).ok_or_else(large)?;
        let strides = strides.unwrap_or_else(|| dense(&shape));
        if strides.len() != shape.len() {
            return Err(format!("it has {} dimensions and {} strides", shape.len(), strides.len()));
        }
        let mut last = offset;
        for (&dim, &stride) in shape.iter().zip(&strides) {
            let step = dim.saturating_sub(1).checked_mul(stride);
            last = step.and_then(|step| last.checked_add(step)).ok_or_else(large)?;
        }
        let end = if count == 0 { Some(0) } else { last.checked_add(1).and_then(|end| end.checked_mul(kind.bytes())) };
        let end = end.and_then(|end| end.checked_add(range[0])).ok_or_else(large)?;
        if end > range[1] {
            return Err(format!("its last element ends at byte {end}, but its data end at byte {}", range[1]));
        }
        let start = if count == 0 { range[0] } else { range[0] + offset * kind.bytes() };
        Ok(View { file, kind, start, shape, strides })
    }

    /// Returns the view with its last two axes swapped; unchanged if it has one axis.
    pub(crate) fn transposed(mut self) -> View {
        if let [.., a, b] = &mut self.shape[..] {
            std::mem::swap(a, b);
        }
        if let [.., a, b] = &mut self.strides[..] {
            std::mem::swap(a, b);
        }
        self
    }

    /// Drops axes of size 1 before the others, or adds some, until there are `axes`.
    pub(crate) fn reshape_ones(&mut self, axes: usize) {
        while self.shape.len() > axes && self.shape[0] == 1 {
            self.shape.remove(0);
            self.strides.remove(0);
        }
        while self.shape.len() < axes {
            let stride =
                self.shape.first().zip(self.strides.first()).map_or(1, |(dim, stride)| dim.saturating_mul(*stride));
            self.shape.insert(0, 1);
            self.strides.insert(0, stride);
        }
    }

    /// Returns `count` rows of the first axis, from row `first` on; `None` if there are fewer.
    pub(crate) fn rows(&self, first: u64, count: u64) -> Option<View> {
        let mut view = self.clone();
        if first.checked_add(count)? > *self.shape.first()? {
            return None;
        }
        view.shape[0] = count;
        if count > 0 {
            // In a view without elements this offset may be out of range, but nothing is read there.
            let skipped = first.saturating_mul(self.strides[0]).saturating_mul(self.kind.bytes());
            view.start = view.start.saturating_add(skipped);
        }
        Some(view)
    }

    /// Reads elements in row-major order into `out`, from element `first` on.
    pub(crate) fn read(&self, source: &Source, first: u64, out: &mut [f32]) {
        let (bytes, map) = (self.kind.bytes() as usize, source.bytes(self.file));
        if self.strides == dense(&self.shape) {
            let start = self.start as usize + first as usize * bytes;
            let all = map.get(start..start + out.len() * bytes).unwrap_or_default();
            let numbers = all.chunks_exact(bytes.max(1)).map(|bytes| self.kind.number(bytes));
            return out.iter_mut().zip(numbers).for_each(|(value, number)| *value = number);
        }
        let (inner, step) = self.shape.last().zip(self.strides.last()).map_or((1, 1), |(dim, step)| (*dim, *step));
        let number = |at: usize| map.get(at..at + bytes).map_or(0.0, |bytes| self.kind.number(bytes));
        let (mut index, mut column, mut filled) = (self.index(first / inner.max(1)), first % inner.max(1), 0);
        while filled < out.len() && inner > 0 {
            let row: u64 = index.iter().zip(&self.strides).map(|(index, stride)| index * stride).sum();
            let count = out.len().min(filled + (inner - column) as usize) - filled;
            for (value, column) in out[filled..filled + count].iter_mut().zip(column..) {
                *value = number((self.start + (row + column * step) * bytes as u64) as usize);
            }
            (filled, column) = (filled + count, 0);
            for (index, &dim) in index.iter_mut().zip(&self.shape).rev() {
                *index += 1;
                if *index < dim {
                    break;
                }
                *index = 0;
            }
        }
    }

    /// Returns the index of a row along all axes but the last.
    fn index(&self, mut row: u64) -> Vec<u64> {
        let outer = &self.shape[..self.shape.len().saturating_sub(1)];
        let mut index: Vec<u64> = outer
            .iter()
            .rev()
            .map(|&dim| {
                let at = row % dim.max(1);
                row /= dim.max(1);
                at
            })
            .collect();
        index.reverse();
        index
    }

    /// True if both have equal shapes and, read as `f32`, equal bits. Views of one type that is no float count as equal, since they are
    /// refused for their type. Rows are compared in parts. A view that repeats elements until it is larger than its file is not compared.
    pub(crate) fn equals(&self, other: &View, source: &Source) -> bool {
        if self == other {
            return true;
        }
        if self.shape != other.shape {
            return false;
        }
        if !(self.kind.is_float() && other.kind.is_float()) {
            return self.kind == other.kind;
        }
        let is_within =
            |view: &View| elements(&view.shape).is_some_and(|count| count <= source.bytes(view.file).len() as u64);
        if !(is_within(self) && is_within(other)) {
            return false;
        }
        let Some(&rows) = self.shape.first() else { return same(source, self, other) };
        let each = (elements(&self.shape[1..]).unwrap_or(1)).max(1);
        let step = (COMPARED / each).max(1);
        (0..rows).step_by(step as usize).all(|first| {
            let count = step.min(rows - first);
            self.rows(first, count).zip(other.rows(first, count)).is_some_and(|(a, b)| same(source, &a, &b))
        })
    }
}

/// The number of elements that are compared at a time.
const COMPARED: u64 = 1 << 16;

fn same(source: &Source, a: &View, b: &View) -> bool {
    let count = elements(&a.shape).unwrap_or(0) as usize;
    let (mut left, mut right) = (vec![0.0; count], vec![0.0; count]);
    a.read(source, 0, &mut left);
    b.read(source, 0, &mut right);
    left.iter().zip(&right).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// Returns the strides of a tensor without gaps.
fn dense(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1_u64; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
    }
    strides
}

/// A byte range of an archive, with its checksum.
#[cfg(feature = "pickle")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// CRC-32; 0 if PyTorch was configured not to compute it.
    pub(crate) checksum: u32,
}

#[cfg(feature = "pickle")]
impl Record {
    /// Checks the bytes of the record in `map`. The error is the difference in words.
    pub(crate) fn check(&self, map: &[u8]) -> Result<(), String> {
        let found = crc32fast::hash(map.get(self.start as usize..self.end as usize).unwrap_or_default());
        if self.checksum == 0 || self.checksum == found {
            return Ok(());
        }
        Err(format!("its checksum is {found:08x}, and {:08x} in the archive", self.checksum))
    }
}

/// Mapped files and the tensors in them.
#[derive(Debug)]
pub(crate) struct Source {
    /// The path that was opened, for messages.
    pub(crate) path: PathBuf,
    maps: Vec<Mmap>,
    /// Checksums of records of archives, by map and first byte.
    #[cfg(feature = "pickle")]
    records: BTreeMap<(usize, u64), Record>,
    pub(crate) tensors: BTreeMap<String, View>,
}

impl Source {
    pub(crate) fn new(path: &Path) -> Source {
        Source {
            path: path.into(),
            maps: Vec::new(),
            #[cfg(feature = "pickle")]
            records: BTreeMap::new(),
            tensors: BTreeMap::new(),
        }
    }

    /// Stores a map, and returns its number.
    pub(crate) fn keep(&mut self, map: Mmap) -> usize {
        self.maps.push(map);
        self.maps.len() - 1
    }

    /// Stores the checksum of a part of a map.
    #[cfg(feature = "pickle")]
    pub(crate) fn note(&mut self, file: usize, record: Record) {
        self.records.insert((file, record.start), record);
    }

    /// Checks the bytes that these views, each with its name, are parts of: each record once. The error is the name of a view and the
    /// fault.
    #[cfg(feature = "pickle")]
    pub(crate) fn check<'v>(&self, views: impl Iterator<Item = (&'v str, &'v View)>) -> Result<(), (&'v str, String)> {
        let mut checked = std::collections::BTreeSet::new();
        for (name, view) in views {
            let before = self.records.range((view.file, 0)..=(view.file, view.start));
            if let Some((key, record)) = before.last().filter(|(key, _)| checked.insert(**key)) {
                record.check(self.bytes(key.0)).map_err(|what| (name, what))?;
            }
        }
        Ok(())
    }

    /// Returns the bytes of a map.
    pub(crate) fn bytes(&self, file: usize) -> &[u8] {
        self.maps.get(file).map_or(&[], |map| map)
    }
}

/// Maps a file into memory.
pub(crate) fn map(path: &Path) -> Result<Mmap, Error> {
    let failed = |error: std::io::Error| Error::file(path, format!("cannot be read: {error}"));
    let file = File::open(path).map_err(failed)?;
    let data = file.metadata().map_err(failed)?;
    if !data.is_file() {
        return Err(Error::file(
            path,
            "is no file; give the path of a `.safetensors`, `.safetensors.index.json`, `.pt` or `.pth` file",
        ));
    }
    if data.len() == 0 {
        return Err(Error::file(path, "is empty; copy or download it again"));
    }
    // SAFETY: the map is read-only and private to this crate, and is read as bytes, of which any are valid. As with every map, nobody may
    // shorten the file or write into it while it is read: `Weights` says so. Files that this crate writes take the place of others whole.
    unsafe { Mmap::map(&file) }.map_err(failed)
}
