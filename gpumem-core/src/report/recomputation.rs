//! The operations of a training step that are recomputed, and their cost.

use super::roofline::{flops, moved};
use crate::memory::Compiled;
use crate::memory::place::place;
use crate::program::{Action, Operation, Pass};

/// The recomputed operations of a step, with their cost for the whole batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recomputation {
    /// The number of operations.
    pub operations: u64,
    /// Floating-point operations: two for each multiply-accumulate.
    pub flops: u64,
    /// Bytes that they read and write. If a norm's output is recomputed by the operation of its gradient, only its write counts.
    pub moved: u64,
}

impl Recomputation {
    /// Returns the recomputation of a program; nothing for a program that cannot be read.
    pub fn of(compiled: &Compiled<'_>) -> Recomputation {
        let Ok(placed) = place(compiled) else { return Recomputation::default() };
        let mut found = Recomputation::default();
        let operations = &placed.program.operations;
        let is_again = |operation: &Operation| matches!(operation.action, Action::Run { pass: Pass::Again, .. });
        for (at, operation) in operations.iter().enumerate().filter(|(_, operation)| is_again(operation)) {
            found.operations += 1;
            found.flops = found.flops.saturating_add(flops(operation, compiled.batch));
            // Once for each micro-batch.
            found.moved = found.moved.saturating_add(moved(&placed, at).saturating_mul(compiled.tables.micro_batches));
        }
        found
    }
}
