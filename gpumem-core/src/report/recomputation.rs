//! What of a training step is computed a second time, and what that takes.

use super::roofline::{flops, moved};
use crate::memory::Compiled;
use crate::memory::place::place;
use crate::program::{Action, Operation, Pass};

/// Operations that run again, of a whole batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recomputation {
    /// How many.
    pub operations: u64,
    /// Floating-point operations: two for each multiply-accumulate.
    pub flops: u64,
    /// Bytes that they read and write. An output of a normalisation that is made beside its gradient is one write.
    pub moved: u64,
}

impl Recomputation {
    /// That of a program; none of one that cannot be read.
    pub fn of(compiled: &Compiled) -> Recomputation {
        let Ok(placed) = place(compiled) else { return Recomputation::default() };
        let mut found = Recomputation::default();
        let operations = &placed.program.operations;
        let is_again = |operation: &Operation| matches!(operation.action, Action::Run { pass: Pass::Again, .. });
        for (at, operation) in operations.iter().enumerate().filter(|(_, operation)| is_again(operation)) {
            found.operations += 1;
            found.flops = found.flops.saturating_add(flops(operation, compiled.batch));
            // Once for each part of the batch.
            found.moved = found.moved.saturating_add(moved(&placed, at).saturating_mul(compiled.tables.micro_batches));
        }
        found
    }
}
