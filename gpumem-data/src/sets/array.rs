//! Arrays in files, whose first axis numbers the samples.

use super::bytes::Bytes;
use crate::element::Elements;
use crate::error::{Error, ErrorKind, Result};
use crate::loader::IGNORED;
use crate::slot::Slot;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most bytes of a compressed array, which is unpacked into memory: 4 GiB.
pub const MOST_UNPACKED: u64 = 4 << 30;

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Rust's")]
pub enum Number {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

/// Evaluates `$body` with `$type` as the Rust type of a number.
macro_rules! with_type {
    ($number:expr, $type:ident => $body:expr) => {
        with_type!($number, $type => $body,
            Bool u8, U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64, I64 i64, F32 f32, F64 f64)
    };
    ($number:expr, $type:ident => $body:expr, $($name:ident $rust:ty),*) => {
        match $number {
            $(Number::$name => {
                type $type = $rust;
                $body
            })*
        }
    };
}

impl Number {
    /// Returns the bytes of an element.
    pub fn bytes(self) -> usize {
        with_type!(self, Type => size_of::<Type>())
    }

    /// True if it can hold labels, since it is an integer type.
    fn is_whole(self) -> bool {
        !matches!(self, Number::F32 | Number::F64)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// An array in a file. Samples are along its first axis.
///
/// `.npy` and unpacked IDX files are mapped: only the parts in use take memory of the process, and they must not be changed while they are
/// open. Arrays of `.npz` and `.gz` files are unpacked into memory, at most [`MOST_UNPACKED`] bytes each.
#[derive(Clone, Debug)]
pub struct Array {
    path: PathBuf,
    bytes: Arc<Bytes>,
    /// The byte offset of the elements.
    start: usize,
    layout: Layout,
}

/// The header of an array.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub dims: Vec<usize>,
    pub number: Number,
    pub is_big_endian: bool,
    /// True if bytes are those of images: in a network of `f32` they are divided by 255.
    pub is_image: bool,
}

impl Layout {
    /// Returns the bytes of all elements, or an error if they exceed 64 bits.
    pub fn length(&self) -> Result<u64> {
        let bytes = self.dims.iter().try_fold(self.number.bytes() as u64, |bytes, &dim| bytes.checked_mul(dim as u64));
        bytes.ok_or_else(|| {
            Error::format(format!("is damaged: an array of shape {:?} exceeds all memory; write it again", self.dims))
        })
    }
}

impl Array {
    /// Returns an array of the elements from byte `start` on. Checks that the bytes are complete.
    pub(super) fn new(path: &Path, bytes: Bytes, start: usize, layout: Layout) -> Result<Array> {
        let (expected, found) = (layout.length()?, bytes.len().saturating_sub(start) as u64);
        if expected != found {
            return Err(super::bytes::length_error(expected, found).with_file(path));
        }
        if layout.dims.is_empty() {
            let what = "holds a single number; store an array whose first axis numbers the samples";
            return Err(Error::format(what).with_file(path));
        }
        if found == 0 && layout.dims[0] != 0 {
            let what =
                format!("has samples without elements, of shape {:?}; write it again with all axes", layout.dims);
            return Err(Error::format(what).with_file(path));
        }
        Ok(Array { path: path.into(), bytes: Arc::new(bytes), start, layout })
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the dimensions; the first is the number of samples.
    pub fn dims(&self) -> &[usize] {
        &self.layout.dims
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> usize {
        self.layout.dims.first().copied().unwrap_or(0)
    }

    /// Returns the type of the elements.
    pub fn number(&self) -> Number {
        self.layout.number
    }

    /// Returns the dimensions of a sample.
    pub(super) fn sample_dims(&self) -> &[usize] {
        self.layout.dims.get(1..).unwrap_or_default()
    }

    /// Returns the bytes of a sample; none beyond the last sample.
    pub(super) fn sample(&self, index: usize) -> &[u8] {
        let size = self.sample_dims().iter().product::<usize>() * self.layout.number.bytes();
        self.bytes.get(self.start + index * size..self.start + (index + 1) * size).unwrap_or_default()
    }

    /// Writes a sample to a slot. Labels must be below `classes`.
    pub(super) fn put(&self, index: usize, slot: &mut Slot<'_>, is_input: bool, classes: u64) -> Result<()> {
        let is_longer = |dim: &&usize| **dim != 1;
        if !slot.shape().iter().filter(is_longer).eq(self.sample_dims().iter().filter(is_longer)) {
            return Err(slot.shape_error(self.sample_dims()));
        }
        let bytes = self.sample(index);
        let number = self.layout.number;
        if self.layout.is_image && is_input && number == Number::U8 {
            return slot.put_bytes(bytes);
        }
        let found = match slot.elements() {
            Elements::U8(out) if matches!(number, Number::U8 | Number::Bool) && out.len() == bytes.len() => {
                out.copy_from_slice(bytes);
                return Ok(());
            }
            Elements::F32(out) => return self.numbers(bytes, out),
            Elements::U32(out) if number.is_whole() => return self.labels(bytes, out, classes),
            _ => number.to_string(),
        };
        Err(slot.element_error(&found))
    }
}

/// Converts the elements of type `$type` in `$bytes` by `$convert`, and writes them to `$out`.
macro_rules! convert {
    ($type:ty, $bytes:expr, $is_big:expr, $out:expr, $convert:expr) => {{
        let words = $bytes.as_chunks::<{ size_of::<$type>() }>().0;
        for (to, &word) in $out.iter_mut().zip(words) {
            let value = if $is_big { <$type>::from_be_bytes(word) } else { <$type>::from_le_bytes(word) };
            *to = $convert(value)?;
        }
        Ok(())
    }};
}

impl Array {
    #[allow(clippy::unnecessary_cast, reason = "one of the types is f32")]
    fn numbers(&self, bytes: &[u8], out: &mut [f32]) -> Result<()> {
        let is_big = self.layout.is_big_endian;
        with_type!(self.layout.number, Type => {
            convert!(Type, bytes, is_big, out, |value: Type| Ok::<f32, Error>(value as f32))
        })
    }

    /// Writes labels. Every whole number fits into an `i128`, and arrays of fractions are refused before.
    fn labels(&self, bytes: &[u8], out: &mut [u32], classes: u64) -> Result<()> {
        let is_big = self.layout.is_big_endian;
        with_type!(self.layout.number, Type => {
            convert!(Type, bytes, is_big, out, |value: Type| {
                label(i64::try_from(value as i128).unwrap_or(i64::MAX), classes)
            })
        })
    }
}

/// The first number that is no label. A network has fewer classes, and -100 as a `u32` is larger.
const MOST_CLASSES: u64 = 1 << 31;

/// Returns a label below `classes`, or PyTorch's default `ignore_index`.
pub(super) fn label(value: i64, classes: u64) -> Result<u32> {
    if value == i64::from(IGNORED.cast_signed()) {
        return Ok(IGNORED);
    }
    let limit = classes.min(MOST_CLASSES);
    match u32::try_from(value) {
        Ok(label) if u64::from(label) < limit => Ok(label),
        _ => Err(Error::new(ErrorKind::Label { value, limit })),
    }
}
