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
    /// Samples in a step, those of all its parts.
    pub batch: u64,
    /// Number format.
    pub precision: Precision,
    /// Which of the step's programs this is.
    pub level: Level,
}

impl Compiled {
    /// Samples that the program takes at once: the batch, or where that is split a part of it.
    pub const fn samples(&self) -> u64 {
        self.tables.samples(self.batch)
    }
}
