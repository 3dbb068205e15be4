//! Errors of training states.

use std::fmt;
use std::path::{Path, PathBuf};

/// An error of a training state. Every message names the file or folder and says what to do next.
///
/// `Debug` writes the message too, since `fn main() -> Result<(), Box<dyn Error>>` prints errors with it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder that cannot be read or written, or that is damaged.
    File {
        /// The file or folder.
        path: PathBuf,
        /// The fault, and what to do.
        what: String,
    },
    /// A state of another network. Nothing was set.
    Differs(Box<Differences>),
    /// A failure of the network or its device while a state was copied. The variant is named unlike any item of gpumem: if a dependency has
    /// an item of the same name, rustc's messages write a type with its path, as `gpumem::Net`.
    Copy {
        /// The folder of the state.
        path: PathBuf,
        /// The network's error.
        error: Box<gpumem_core::error::Error>,
    },
}

/// All differences between a state and a network.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Differences {
    /// The folder of the state.
    pub path: PathBuf,
    /// The network's name.
    pub network: &'static str,
    /// Settings that differ, in words: `batch 32 in the file, 64 in the network`.
    pub settings: Vec<String>,
    /// Tensors that the network needs and the state lacks.
    pub missing: Vec<String>,
    /// Tensors of the state that the network has no place for.
    pub unexpected: Vec<String>,
    /// Tensors of another shape or format, in words.
    pub shapes: Vec<String>,
}

impl Differences {
    /// True if the state is one of the network.
    pub(crate) fn is_empty(&self) -> bool {
        let Differences { settings, missing, unexpected, shapes, .. } = self;
        [settings, missing, unexpected, shapes].iter().all(|list| list.is_empty())
    }
}

/// The most names of a list that a message prints.
const MOST_NAMES: usize = 8;

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Differences { path, network, settings, missing, unexpected, shapes } = self;
        write!(f, "{} is not a state of network `{network}` as it is now:", path.display())?;
        for setting in settings {
            write!(f, "\n  {setting}")?;
        }
        let lists = [
            (missing, "missing in the file"),
            (unexpected, "not in the network"),
            (shapes, "of another shape or format"),
        ];
        for (names, what) in lists.into_iter().filter(|(names, _)| !names.is_empty()) {
            let shown = names.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>().join(", ");
            let more = match names.len().saturating_sub(MOST_NAMES) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            write!(f, "\n  {what}: {shown}{more}")?;
        }
        write!(
            f,
            "\nresume with the network that was saved, or take what matches: `SavedState::open({path:?})?.resume_matching(&mut net)?`"
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File { path, what } => write!(f, "{} {what}", path.display()),
            Error::Differs(differences) => write!(f, "{differences}"),
            Error::Copy { path, error } => write!(f, "{}: {error}", path.display()),
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
            Error::Copy { error, .. } => Some(error),
            Error::File { .. } | Error::Differs(_) => None,
        }
    }
}

impl Error {
    pub(crate) fn file(path: &Path, what: impl Into<String>) -> Error {
        Error::File { path: path.to_path_buf(), what: what.into() }
    }

    /// Returns the error of the network for a state in `path`.
    pub(crate) fn copy(path: &Path, error: gpumem_core::error::Error) -> Error {
        Error::Copy { path: path.to_path_buf(), error: Box::new(error) }
    }

    /// Returns the error of something that the system refused.
    pub(crate) fn system(path: &Path, doing: &str, error: &std::io::Error) -> Error {
        use std::io::ErrorKind as Kind;
        let advice = match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => {
                "free some space, or save to another disk; the states that were saved before are whole"
            }
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => "choose a folder that this user may write to",
            Kind::NotFound => "check the path",
            Kind::NotADirectory | Kind::AlreadyExists => "choose the path of a folder, not of a file",
            _ => "check the disk and the path",
        };
        Error::file(path, format!("cannot be {doing} ({error}); {advice}"))
    }
}
