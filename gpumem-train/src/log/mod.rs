//! Logs: files that a training writes while it runs.

mod csv;
mod json;
mod lines;
mod tensorboard;

pub use csv::Csv;
pub use json::JsonLines;
pub use tensorboard::TensorBoard;

use crate::error::Result;
use crate::metrics::Table;

/// The start of a training, for logs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Begin<'a> {
    /// The network's name.
    pub network: &'a str,
    /// Steps of the checkpoint from which the training is resumed. `None` if it starts anew.
    ///
    /// A log drops its records of later steps, since these are repeated.
    pub resumed: Option<u64>,
    /// Training steps that the network has made, including those of earlier trainings.
    pub step: u64,
    /// Names of all values that records will have, except those of callbacks.
    pub names: &'a [String],
}

/// Values of one step, or of one evaluation.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// Training steps that have been made.
    pub step: u64,
    /// The epoch that the last batch was of; the first is 0.
    pub epoch: u64,
    /// Seconds of training, over all runs that were resumed.
    pub seconds: f64,
    /// Names and values: `loss` of a step, `train_loss`, `val_loss` and metrics of an evaluation.
    pub values: &'a [(String, f64)],
    /// Tables of an evaluation.
    pub tables: &'a [Table],
}

/// A log of a training.
pub trait Logger {
    /// Starts the log, before the first step.
    ///
    /// # Errors
    /// A file that cannot be written, or that is not of this log.
    fn begin(&mut self, begin: &Begin<'_>) -> Result<()>;

    /// Writes a record. The record must survive the end of the process.
    ///
    /// # Errors
    /// A file that cannot be written, or a value that the log has no place for.
    fn record(&mut self, record: &Entry<'_>) -> Result<()>;

    /// True if [`Logger::parameter`] is to be called after each evaluation. Reading parameters from a device takes time.
    fn wants_parameters(&self) -> bool {
        false
    }

    /// Writes a summary of a parameter, such as a histogram. Does nothing unless the log implements it.
    ///
    /// # Errors
    /// A file that cannot be written.
    fn parameter(&mut self, step: u64, name: &str, values: &[f32]) -> Result<()> {
        let _ = (step, name, values);
        Ok(())
    }
}
