//! Errors of files of weights.

use std::fmt;
use std::path::{Path, PathBuf};

/// An error of a file of weights. Every message names the file and says what to do next.
///
/// `Debug` writes the message too, since `fn main() -> Result<(), Box<dyn Error>>` prints errors with it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// A file that cannot be read or written, or that is damaged.
    File {
        /// The file.
        path: PathBuf,
        /// The fault, and what to do.
        what: String,
    },
    /// A file that could not be fetched from the Hugging Face hub.
    Hub {
        /// The repository, such as `openai-community/gpt2`.
        repo: String,
        /// The file in it.
        file: String,
        /// The fault, and what to do.
        what: String,
    },
    /// A pickle that calls Python code, which this reader does not run.
    Refused {
        /// The file.
        path: PathBuf,
        /// The Python names that it uses, such as `numpy.ndarray`, each once.
        globals: Vec<String>,
    },
    /// A file that does not fit the network. Nothing was set.
    Mismatch(Box<Mismatch>),
    /// A tensor that could not be set: to a value that it cannot have, such as a negative variance, or because the device failed. The
    /// variant is named unlike any item of gpumem: if a dependency has an item of the same name, rustc's messages write a type with its
    /// path, as `gpumem::Net`.
    Set {
        /// The file.
        path: PathBuf,
        /// The network's error.
        error: Box<gpumem_core::error::Error>,
    },
}

/// All differences between a file and a network.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Mismatch {
    /// The file.
    pub path: PathBuf,
    /// The network's name.
    pub network: &'static str,
    /// Tensors that the network needs and the file lacks.
    pub missing: Vec<Lone>,
    /// Tensors of the file that the network has no place for.
    pub unexpected: Vec<Lone>,
    /// Tensors of another shape.
    pub shapes: Vec<Shapes>,
    /// Other mistakes of single tensors or rules, in words.
    pub others: Vec<String>,
    /// The renaming with which most names would match. `None` if there is none.
    pub renaming: Option<(String, String)>,
}

/// A tensor that only one of file and network has.
#[derive(Clone, Debug, PartialEq)]
pub struct Lone {
    /// Its name, as files have it.
    pub name: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// The nearest name on the other side. `None` if none is near.
    pub nearest: Option<String>,
}

/// A tensor whose shape is another one in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Shapes {
    /// Its name, as files have it.
    pub name: String,
    /// The shape that the network needs.
    pub expected: Vec<u64>,
    /// The shape in the file, after the rules of the mapping.
    pub found: Vec<u64>,
}

impl Mismatch {
    /// True if the file fits.
    pub(crate) fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.shapes.is_empty() && self.others.is_empty()
    }
}

/// Appends a text such as `3 tensors are missing`, unless the count is 0.
fn counted(counts: &mut Vec<String>, count: usize, one: &str, several: &str) {
    match count {
        0 => {}
        1 => counts.push(format!("1 {one}")),
        _ => counts.push(format!("{count} {several}")),
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts = Vec::new();
        counted(&mut counts, self.missing.len(), "tensor is missing", "tensors are missing");
        counted(&mut counts, self.unexpected.len(), "is unexpected", "are unexpected");
        counted(&mut counts, self.shapes.len(), "has another shape", "have another shape");
        counted(&mut counts, self.others.len(), "further mistake", "further mistakes");
        writeln!(f, "{} does not fit `{}`: {}", self.path.display(), self.network, counts.join(", "))?;
        for Lone { name, shape, nearest } in &self.missing {
            write!(f, "  missing     `{name}` {shape:?}")?;
            writeln!(f, "{}", nearest.as_ref().map(|name| format!("; the file has `{name}`")).unwrap_or_default())?;
        }
        for Lone { name, shape, nearest } in &self.unexpected {
            write!(f, "  unexpected  `{name}` {shape:?}")?;
            writeln!(f, "{}", nearest.as_ref().map(|name| format!("; the network has `{name}`")).unwrap_or_default())?;
        }
        for Shapes { name, expected, found } in &self.shapes {
            write!(f, "  shape       `{name}` is {expected:?} in the network and {found:?} in the file")?;
            let is_turned = found.iter().rev().eq(expected) && expected.len() == 2;
            writeln!(f, "{}", if is_turned { format!("; `.transpose(\"{name}\")` turns it") } else { String::new() })?;
        }
        for other in &self.others {
            writeln!(f, "  rule        {other}")?;
        }
        f.write_str("nothing was loaded")?;
        if let Some((from, to)) = &self.renaming {
            write!(f, "; `.rename(\"{from}\", \"{to}\")` brings most names together")?;
        } else if !(self.missing.is_empty() && self.unexpected.is_empty()) {
            write!(f, "; `.rename(\"from\", \"to\")` changes the file's names")?;
        }
        if !self.shapes.is_empty() {
            let first = self.shapes[0].name.split('.').next().unwrap_or_default();
            write!(f, "; `.skip(\"{first}.*\")` leaves such tensors as they are")?;
        }
        if !(self.missing.is_empty() && self.unexpected.is_empty()) {
            write!(f, "; `.strict(false)` takes what both have")?;
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File { path, what } => write!(f, "{}: {what}", path.display()),
            Error::Hub { repo, file, what } => write!(f, "{repo}/{file}: {what}"),
            Error::Refused { path, globals } => {
                let globals: Vec<String> = globals.iter().map(|global| format!("`{global}`")).collect();
                write!(
                    f,
                    "{}: it asks for {}, and this reader runs no code of a file; save the tensors alone, with \
                     `torch.save(model.state_dict(), path)` or `safetensors.torch.save_file`",
                    path.display(),
                    globals.join(", ")
                )
            }
            Error::Mismatch(mismatch) => mismatch.fmt(f),
            Error::Set { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Set { error, .. } => Some(&**error),
            _ => None,
        }
    }
}

impl Error {
    /// Returns the error of a file.
    pub(crate) fn file(path: &Path, what: impl Into<String>) -> Error {
        Error::File { path: path.into(), what: what.into() }
    }

    /// Returns the error that the network or its device reported.
    pub(crate) fn net(path: &Path, error: gpumem_core::error::Error) -> Error {
        Error::Set { path: path.into(), error: Box::new(error) }
    }
}

/// Bytes as text, in MiB.
pub(crate) struct Mib(pub(crate) u64);

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} MiB", self.0 as f64 / f64::from(1 << 20))
    }
}
