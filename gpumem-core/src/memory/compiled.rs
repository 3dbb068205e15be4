use super::budget::Budget;
use super::levels::Level;
use super::tables::Tables;
use crate::number::Precision;

/// A program with its plan and its budget, ready to be run.
#[derive(Clone, Copy, Debug)]
pub struct Compiled {
    /// The program, as [`Program::encode`](crate::program::Program::encode) wrote it.
    pub program: &'static [u8],
    /// The tables that the plan was made from.
    pub tables: &'static Tables,
    /// Byte offset of each transient tensor within the activations' part of the arena.
    pub offsets: &'static [u64],
    /// Every line of the budget, in bytes.
    pub budget: Budget,
    /// Samples of a step, in all of its micro-batches.
    pub batch: u64,
    /// The number format.
    pub precision: Precision,
    /// The recompute level that this program is.
    pub level: Level,
}

impl Compiled {
    /// Returns the samples that the program takes at once: the batch, or one micro-batch of it.
    pub const fn samples(&self) -> u64 {
        self.tables.samples(self.batch)
    }
}
