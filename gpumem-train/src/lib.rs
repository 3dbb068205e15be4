#![doc = include_str!("../README.md")]

mod best;
mod checkpoint;
mod context;
mod error;
mod evaluation;
mod every;
mod guards;
mod interrupt;
pub mod log;
pub mod metrics;
mod padding;
mod progress;
mod replay;
mod report;
mod shard;
mod start;
mod steps;
pub mod tensorboard;
mod trainer;

pub use best::Best;
pub use context::Context;
pub use error::{BoxError, Error, NotFinite, Origin, Result};
pub use evaluation::{ByLoader, BySet, ValidateOn};
pub use every::Every;
pub use interrupt::Stopper;
pub use report::{EvaluationReport, StepReport, Stop, TrainReport};
pub use steps::TrainSteps;
pub use trainer::Trainer;
