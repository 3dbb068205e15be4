//! The bytes of a file: mapped, or in memory.

use crate::error::{Error, ErrorKind, Result};
use memmap2::Mmap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::Path;

/// Read-only bytes.
#[derive(Debug)]
pub(super) enum Bytes {
    /// The bytes of a mapped file. The operating system reads them on demand, and may drop them again.
    Mapped(Mmap),
    /// Unpacked bytes in memory.
    Held(Vec<u8>),
}

impl Bytes {
    /// Maps a file.
    pub fn map(path: &Path) -> Result<Bytes> {
        let file = open(path)?;
        // SAFETY: nobody writes to the mapping. That no other process changes the file while it is mapped is a condition
        // that the documentation of every set with mapped files states: the operating system cannot enforce it.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| Error::io(path, &error))?;
        Ok(Bytes::Mapped(map))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Held(bytes) => bytes,
        }
    }
}

/// Opens a file for reading. Folders, pipes and devices are errors: reading a pipe might never end.
pub(crate) fn open(path: &Path) -> Result<File> {
    let metadata = std::fs::metadata(path).map_err(|error| Error::io(path, &error))?;
    if !metadata.is_file() {
        return Err(Error::format("is not a file; give the path of a file").with_file(path));
    }
    File::open(path).map_err(|error| Error::io(path, &error))
}

/// Fills `bytes` from the start of a packed or plain file. `short` is the error of a file that ends too early.
pub(super) fn fill(from: &mut impl Read, bytes: &mut [u8], short: fn() -> Error) -> Result<()> {
    from.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => short(),
        _ => damaged(&error),
    })
}

/// Returns the error of packed bytes that cannot be unpacked.
fn damaged(error: &io::Error) -> Error {
    Error::format(format!("is damaged ({error}); download or write it again"))
}

/// Reads all of `from`, which must have `length` bytes. Allocates no more than the bytes that exist, and at most `limit`.
pub(super) fn read_exactly(from: impl Read, length: u64, limit: u64, advice: &'static str) -> Result<Vec<u8>> {
    if length > limit {
        return Err(Error::new(ErrorKind::TooLarge { needed: Some(length), limit, advice }));
    }
    let mut bytes = Vec::new();
    // Reading one byte more than expected shows whether there are too many.
    from.take(length + 1).read_to_end(&mut bytes).map_err(|error| damaged(&error))?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(length_error(length, bytes.len() as u64)) }
}

/// Returns the error of a file whose length differs from its header.
pub(super) fn length_error(expected: u64, found: u64) -> Error {
    let relation = if found > expected { "has more" } else { "has only" };
    let found = if found > expected { String::new() } else { format!(" {found}") };
    Error::format(format!(
        "is damaged: its header promises {expected} bytes of elements, but it {relation}{found}; download or write it again"
    ))
}
