//! Numpy's files: `.npy` and `.npz`.
//!
//! The header is a Python dictionary of three entries, which this file parses itself: existing crates accept any Python literal, and bound
//! neither nesting nor the product of dimensions.

use super::array::{Array, Layout, Number};
use super::bytes::{Bytes, fill};
use crate::error::{Error, Result};
use std::io::Read;
use std::path::Path;

/// The most bytes of a header: numpy itself refuses those above 10,000.
const MOST_HEADER: usize = 10_000;

impl Array {
    /// Opens an array of `numpy.save`. For a network that takes `f32`, integers are converted without scaling.
    ///
    /// # Errors
    /// A file that cannot be read, is no `.npy` file, holds other values than numbers, is in Fortran's order, or has another length than
    /// its header says.
    pub fn npy(path: impl AsRef<Path>) -> Result<Array> {
        let path = path.as_ref();
        let open = || {
            let bytes = Bytes::map(path)?;
            let mut rest = &bytes[..];
            let layout = header(&mut rest)?;
            let first = bytes.len() - rest.len();
            Array::new(path, bytes, first, layout)
        };
        open().map_err(|error| error.with_file(path))
    }

    /// Opens the array `name` of `numpy.savez` or `numpy.savez_compressed`, and unpacks it into memory.
    ///
    /// # Errors
    /// As for [`Array::npy`], a name that the archive does not have, and an array that is larger than
    /// [`MOST_UNPACKED`](super::MOST_UNPACKED).
    #[cfg(feature = "npz")]
    pub fn npz(path: impl AsRef<Path>, name: &str) -> Result<Array> {
        let path = path.as_ref();
        unpack(path, name).map_err(|error| error.with_file(path))
    }
}

#[cfg(feature = "npz")]
fn unpack(path: &Path, name: &str) -> Result<Array> {
    let damaged = |error: zip::result::ZipError| {
        Error::format(format!("is no archive of numpy arrays ({error}); write it again with `numpy.savez`"))
    };
    let file = std::io::BufReader::new(super::bytes::open(path)?);
    let mut archive = zip::ZipArchive::new(file).map_err(damaged)?;
    let member = format!("{name}.npy");
    let Some(index) = archive.index_for_name(&member) else {
        let names = archive.file_names().flatten().take(20).map(|file| file.trim_end_matches(".npy").to_owned());
        let names = names.collect::<Vec<_>>().join("`, `");
        return Err(Error::format(format!("has no array `{name}`; take one of `{names}`")));
    };
    let mut member = archive.by_index(index).map_err(damaged)?;
    let layout = header(&mut member)?;
    let advice = "store it with `numpy.save`: `.npy` files are mapped, not held";
    let bytes = super::bytes::read_exactly(member, layout.length()?, super::MOST_UNPACKED, advice)?;
    Array::new(path, Bytes::Held(bytes), 0, layout)
}

/// Reads the magic number, the version and the dictionary.
fn header(from: &mut impl Read) -> Result<Layout> {
    let mut start = [0; 8];
    fill(from, &mut start, no_npy)?;
    let length = match &start {
        [b'\x93', b'N', b'U', b'M', b'P', b'Y', 1, 0] => usize::from(u16::from_le_bytes(bytes(from)?)),
        [b'\x93', b'N', b'U', b'M', b'P', b'Y', 2 | 3, 0] => u32::from_le_bytes(bytes(from)?) as usize,
        _ => return Err(no_npy()),
    };
    if length > MOST_HEADER {
        return Err(no_npy());
    }
    let mut text = vec![0; length];
    fill(from, &mut text, no_npy)?;
    dictionary(std::str::from_utf8(&text).map_err(|_| no_npy())?)
}

fn bytes<const N: usize>(from: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(from, &mut bytes, no_npy)?;
    Ok(bytes)
}

/// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
fn dictionary(text: &str) -> Result<Layout> {
    let value = |key: &str| {
        let rest = text.split_once(&format!("'{key}'"))?.1.trim_start();
        Some(rest.strip_prefix(':')?.trim_start())
    };
    let descr = value("descr").ok_or_else(no_npy)?;
    let descr = descr.strip_prefix('\'').and_then(|rest| rest.split_once('\'')).map(|(descr, _)| descr);
    // The `descr` of records and of arrays of records begins with a bracket.
    let descr = descr.ok_or_else(|| unsupported("records"))?;
    let shape = value("shape").and_then(|rest| rest.strip_prefix('(')?.split_once(')')).ok_or_else(no_npy)?.0;
    let dims = shape.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    let dims = dims.map(|dim| dim.parse().map_err(|_| no_npy())).collect::<Result<Vec<usize>>>()?;
    if !value("fortran_order").ok_or_else(no_npy)?.starts_with("False") && dims.len() > 1 {
        return Err(Error::format(
            "is in Fortran's order; write it again from `numpy.ascontiguousarray(array)`, with the samples along the first axis",
        ));
    }
    let number = number(descr.trim_start_matches(['<', '>', '|', '='])).ok_or_else(|| unsupported(descr))?;
    Ok(Layout { dims, number, is_big_endian: descr.starts_with('>'), is_image: false })
}

fn number(code: &str) -> Option<Number> {
    Some(match code {
        "b1" => Number::Bool,
        "u1" => Number::U8,
        "i1" => Number::I8,
        "u2" => Number::U16,
        "i2" => Number::I16,
        "u4" => Number::U32,
        "i4" => Number::I32,
        "u8" => Number::U64,
        "i8" => Number::I64,
        "f4" => Number::F32,
        "f8" => Number::F64,
        _ => return None,
    })
}

fn unsupported(what: &str) -> Error {
    Error::format(format!(
        "holds elements of type `{what}`; write it again as numbers, with `array.astype(numpy.float32)`"
    ))
}

fn no_npy() -> Error {
    Error::format("is no array of numpy, or its header is damaged; write it again with `numpy.save`")
}
