//! Errors of data sets and of the loader.

use crate::element::ElementType;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error of a data set or of the loader, with the file that it comes from. Every message says what to do next.
///
/// `Debug` writes the message too, since `fn main() -> Result<(), Box<dyn Error>>` prints errors with it.
#[derive(Clone, PartialEq)]
pub struct Error {
    file: Option<PathBuf>,
    place: Option<Place>,
    kind: Box<ErrorKind>,
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A position in a file or in a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of a text file; the first is 1.
    Line(u64),
    /// A sample of a data set; the first is 0.
    Sample(usize),
}

/// The kinds of error.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file or folder that cannot be read.
    Io {
        /// The kind of failure.
        kind: io::ErrorKind,
        /// The operating system's message.
        message: String,
    },
    /// A file that is damaged, or not of the expected format.
    Format {
        /// The fault, and what to do.
        what: String,
    },
    /// A sample, or an array, of another shape than the network takes.
    Shape {
        /// Dimensions of the network's tensor, without the batch.
        expected: Vec<usize>,
        /// Dimensions that were found.
        found: Vec<usize>,
    },
    /// Elements of another type than the network takes.
    Element {
        /// The type of the network's tensor.
        expected: ElementType,
        /// The type that was found.
        found: String,
    },
    /// A label or token that is not below its limit.
    Label {
        /// The value.
        value: i64,
        /// The first value that is too large.
        limit: u64,
    },
    /// A data set without samples.
    Empty {
        /// A way to provide samples.
        wanted: String,
    },
    /// Fewer samples than one batch, although incomplete batches are dropped.
    FewSamples {
        /// Samples of this shard.
        samples: usize,
        /// Samples of a batch.
        batch: usize,
    },
    /// A path outside of the folder of the data set.
    Outside {
        /// The folder.
        root: PathBuf,
    },
    /// Data that takes more memory than is allowed.
    TooLarge {
        /// Bytes that are needed. `None` if that is not known.
        needed: Option<u64>,
        /// Bytes that are allowed.
        limit: u64,
        /// A way to stay below the limit.
        advice: &'static str,
    },
    /// A setting that is not possible.
    Setting {
        /// The fault, and what to do.
        what: String,
    },
    /// A panic in a worker.
    Panic {
        /// The panic's message.
        message: String,
    },
}

impl Error {
    /// Returns an error of this kind, without a file.
    pub fn new(kind: ErrorKind) -> Error {
        Error { file: None, place: None, kind: Box::new(kind) }
    }

    /// Returns an error of a failed read of `file`.
    pub fn io(file: impl Into<PathBuf>, error: &io::Error) -> Error {
        Error::new(ErrorKind::Io { kind: error.kind(), message: error.to_string() }).with_file(file)
    }

    /// Returns an error of damaged data. `what` is the fault, and what to do.
    pub fn format(what: impl Into<String>) -> Error {
        Error::new(ErrorKind::Format { what: what.into() })
    }

    /// Returns an error of an impossible setting. `what` is the fault, and what to do.
    pub fn setting(what: impl Into<String>) -> Error {
        Error::new(ErrorKind::Setting { what: what.into() })
    }

    /// Adds the file, unless the error names one.
    #[must_use]
    pub fn with_file(mut self, file: impl Into<PathBuf>) -> Error {
        self.file.get_or_insert_with(|| file.into());
        self
    }

    /// Adds a place, unless the error has one.
    #[must_use]
    pub fn with_place(mut self, place: Place) -> Error {
        self.place.get_or_insert(place);
        self
    }

    /// Returns the file that the error is about. `None` if it is about none.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the line or the sample that the error is about. `None` if it is about none.
    pub fn place(&self) -> Option<Place> {
        self.place
    }

    /// Returns the kind of error.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "`{}`", file.display())?;
        }
        match (self.place, self.file.is_some()) {
            (Some(Place::Line(line)), true) => write!(f, ", line {line}: ")?,
            (Some(Place::Line(line)), false) => write!(f, "line {line}: ")?,
            (Some(Place::Sample(sample)), true) => write!(f, ", sample {sample}: ")?,
            (Some(Place::Sample(sample)), false) => write!(f, "sample {sample}: ")?,
            (None, true) => f.write_str(": ")?,
            (None, false) => {}
        }
        self.kind.fmt(f)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Io { message, .. } => {
                write!(f, "cannot be read ({message}); check that it exists and that you may read it")
            }
            ErrorKind::Format { what } | ErrorKind::Setting { what } => f.write_str(what),
            ErrorKind::Shape { expected, found } => write!(
                f,
                "the network takes {expected:?}, but there is {found:?}; resize or crop the data, or change the network's input"
            ),
            ErrorKind::Element { expected, found } => write!(
                f,
                "the network takes {expected}, but there is {found}; store the data as {expected}, or change the network's type"
            ),
            ErrorKind::Label { value, limit } => write!(
                f,
                "the label {value} is out of range: it must be at least 0 and below {limit}; correct it, or give the network more classes"
            ),
            ErrorKind::Empty { wanted } => write!(f, "there are no samples: {wanted}"),
            ErrorKind::FewSamples { samples, batch } => write!(
                f,
                "{samples} samples are fewer than a batch of {batch}, and `drop_last` leaves nothing; take a smaller batch, or leave `drop_last` out"
            ),
            ErrorKind::Outside { root } => {
                write!(
                    f,
                    "leads out of the folder `{}`; move the file into it, or open a folder that has both",
                    root.display()
                )
            }
            ErrorKind::TooLarge { needed: Some(needed), limit, advice } => {
                write!(f, "takes {needed} bytes of memory, but at most {limit} are allowed; {advice}")
            }
            ErrorKind::TooLarge { needed: None, limit, advice } => {
                write!(f, "takes more than the {limit} bytes of memory that are allowed; {advice}")
            }
            ErrorKind::Panic { message } => {
                write!(f, "the data set panicked (\"{message}\"); correct its `get`, which runs in a worker thread")
            }
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::{Error, Place};

    #[test]
    fn messages_begin_with_file_and_place() {
        let error = || Error::format("is damaged");
        let cases = [
            (error(), "is damaged"),
            (error().with_place(Place::Line(3)), "line 3: is damaged"),
            (error().with_place(Place::Sample(7)), "sample 7: is damaged"),
            (error().with_file("a.csv"), "`a.csv`: is damaged"),
            (error().with_file("a.csv").with_place(Place::Line(3)), "`a.csv`, line 3: is damaged"),
            (error().with_file("a.csv").with_place(Place::Sample(7)), "`a.csv`, sample 7: is damaged"),
            // The first file and the first place stay.
            (error().with_file("a.csv").with_file("b.csv"), "`a.csv`: is damaged"),
            (error().with_place(Place::Line(3)).with_place(Place::Sample(7)), "line 3: is damaged"),
        ];
        for (error, message) in cases {
            assert_eq!(error.to_string(), message);
        }
    }
}
