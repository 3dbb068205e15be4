use super::budget::Budget;
use super::levels::Level;
use super::tables::Tables;
use crate::number::Precision;

/// A program with its plan and its budget, ready to be run.
#[derive(Clone, Copy, Debug)]
pub struct Compiled<'a> {
    /// The program, as [`Program::encode`](crate::program::Program::encode) wrote it.
    pub program: &'a [u8],
    /// The tables that the plan was made from.
    pub tables: &'a Tables<'a>,
    /// Byte offset of each transient tensor within the activations' part of the arena.
    pub offsets: &'a [u64],
    /// Every line of the budget, in bytes.
    pub budget: Budget,
    /// Samples of a step, in all of its micro-batches.
    pub batch: u64,
    /// The number format.
    pub precision: Precision,
    /// The recompute level that this program is.
    pub level: Level,
}

impl Compiled<'_> {
    /// Returns the samples that the program takes at once: the batch, or one micro-batch of it.
    pub const fn samples(&self) -> u64 {
        self.tables.samples(self.batch)
    }
}
