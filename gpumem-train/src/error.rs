//! Errors of a training.

use gpumem_data::Position;
use std::fmt;
use std::path::PathBuf;

/// An error that a callback, or a user's metric or log, may return.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error of a training. Every message says what to do next. The network keeps the state of its last step.
///
/// `Debug` writes the message too, since `fn main() -> Result<(), Box<dyn Error>>` prints errors with it.
#[non_exhaustive]
pub enum Error {
    /// A failure of the network or its device in a step, in validation or between steps.
    Compute {
        /// Training steps that had been made.
        step: u64,
        /// The network's error.
        error: Box<gpumem_core::error::Error>,
    },
    /// An error of the data set or the loader.
    Data(Box<gpumem_data::Error>),
    /// An error of a checkpoint.
    State(Box<gpumem_state::Error>),
    /// A file of a log that cannot be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// The fault, and what to do.
        what: String,
    },
    /// A setting that is not possible.
    Setting {
        /// The fault, and what to do.
        what: String,
    },
    /// A metric that cannot be computed.
    Metric {
        /// The metric's name.
        name: String,
        /// The fault, and what to do.
        what: String,
    },
    /// A batch with padding in a training whose loss counts padding.
    Padding {
        /// Samples of the batch.
        samples: usize,
        /// Samples that a batch has room for.
        batch: usize,
    },
    /// A loss that is NaN or infinite.
    NotFinite(Box<NotFinite>),
    /// An error that a callback returned.
    Callback {
        /// Training steps that had been made.
        step: u64,
        /// The callback's error.
        error: BoxError,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A loss that is NaN or infinite, and its origin.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NotFinite {
    /// The step whose loss it is; the first is 1.
    pub step: u64,
    /// The loss.
    pub loss: f32,
    /// The loader's position before the batch of this step.
    pub position: Position,
    /// Samples of the batch.
    pub samples: usize,
    /// Steps in a row that were skipped, this one included. 0 unless `TRAIN` has `skip: NonFinite`.
    pub skipped: u64,
    /// The first tensor that was not finite.
    pub origin: Origin,
}

/// The first tensor that was not finite, as a replay of the step found it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Origin {
    /// The tensor, in words, and the step that computed it.
    Found {
        /// The tensor, and the part of the step that computes it.
        tensor: String,
        /// The step; the first is 1. It comes before that of the loss if an update made a parameter that is not finite.
        step: u64,
    },
    /// The replay found finite tensors only: the step is not deterministic.
    Vanished,
    /// There is no snapshot to replay from.
    NoSnapshot,
    /// The replay failed.
    Failed(String),
}

impl Error {
    /// Returns an error of an impossible setting. `what` is the fault, and what to do.
    pub fn setting(what: impl Into<String>) -> Error {
        Error::Setting { what: what.into() }
    }

    /// Returns an error of a log's file. `what` is the fault, and what to do.
    pub fn file(path: impl Into<PathBuf>, what: impl Into<String>) -> Error {
        Error::File { path: path.into(), what: what.into() }
    }

    /// Returns an error of a metric. `what` is the fault, and what to do.
    pub fn measure(name: impl Into<String>, what: impl Into<String>) -> Error {
        Error::Metric { name: name.into(), what: what.into() }
    }

    /// Returns an error of a failed access to a log's file.
    pub(crate) fn io(path: impl Into<PathBuf>, error: &std::io::Error) -> Error {
        let what = format!(
            "cannot be written ({error}); check that the folder exists, that you may write to it, and that the disk has room"
        );
        Error::file(path, what)
    }

    /// Returns a function that turns a network's error into one of a training that has made `step` steps.
    pub(crate) fn compute(step: u64) -> impl FnOnce(gpumem_core::error::Error) -> Error {
        move |error| Error::Compute { step, error: Box::new(error) }
    }
}

impl From<gpumem_data::Error> for Error {
    fn from(error: gpumem_data::Error) -> Error {
        Error::Data(Box::new(error))
    }
}

impl From<gpumem_state::Error> for Error {
    fn from(error: gpumem_state::Error) -> Error {
        Error::State(Box::new(error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Compute { step, error } => write!(f, "after step {step}: {error}"),
            Error::Data(error) => error.fmt(f),
            Error::State(error) => error.fmt(f),
            Error::File { path, what } => write!(f, "`{}`: {what}", path.display()),
            Error::Setting { what } => f.write_str(what),
            Error::Metric { name, what } => write!(f, "metric `{name}`: {what}"),
            Error::Padding { samples, batch } => write!(
                f,
                "the last batch of an epoch has {samples} of {batch} samples, and the loss would count its padding; add `.drop_last()` to the \
                 loader, or `ignore_index: -100` to each term of a loss of classes"
            ),
            Error::NotFinite(not_finite) => not_finite.fmt(f),
            Error::Callback { step, error } => write!(f, "a callback failed after step {step}: {error}"),
        }
    }
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotFinite { step, loss, position: Position { epoch, sample }, samples, skipped, origin } = self;
        match skipped {
            0 => write!(f, "the loss of step {step} is {loss}")?,
            skipped => write!(f, "{skipped} steps in a row were skipped, and the loss of the last is {loss}")?,
        }
        match origin {
            Origin::Found { tensor, step: of } if of == step => write!(f, ": {tensor}")?,
            Origin::Found { tensor, step: of } => write!(f, ", and its origin is step {of}: {tensor}")?,
            Origin::Vanished => f.write_str(", but it was finite when the step was run again")?,
            Origin::NoSnapshot => {
                f.write_str("; `.snapshot_every(100)` would name the first tensor that is not finite")?
            }
            Origin::Failed(why) => write!(f, ", and the step could not be run again ({why})")?,
        }
        let after = sample.saturating_add(*samples as u64);
        write!(
            f,
            ". Look at samples {sample} to {after} of epoch {epoch}, lower the learning rate, or add `clip: GlobalNorm(1.0)` to `TRAIN`"
        )?;
        match origin {
            Origin::Found { .. } | Origin::Vanished => f.write_str(". The network is as before this step"),
            Origin::NoSnapshot => f.write_str(". The network is as after this step"),
            Origin::Failed(_) => f.write_str(". Load the last checkpoint before the training goes on"),
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
            Error::Compute { error, .. } => Some(error),
            Error::Data(error) => Some(error),
            Error::State(error) => Some(error),
            Error::Callback { error, .. } => Some(&**error),
            _ => None,
        }
    }
}
