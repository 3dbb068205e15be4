//! Errors of files with models.

use std::fmt;
use std::path::{Path, PathBuf};

/// An error of a file with a model. Its text names the file and says what to do next.
///
/// `Debug` writes the text too, since `fn main() -> Result<(), Box<dyn Error>>` prints errors with it.
#[derive(Clone, PartialEq)]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// The fault, and what to do.
    pub what: String,
}

impl Error {
    pub(crate) fn new(path: &Path, what: impl Into<String>) -> Error {
        Error { path: path.into(), what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
