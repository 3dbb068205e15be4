//! What of a training step is computed a second time, and what that takes.

use super::roofline::{flops, traffic};
use crate::memory::Compiled;
use crate::memory::place::place;
use crate::program::{Action, Operation, Pass, made_beside};

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
            let [read, written] =
                traffic(&placed, operation).map(|all| all.iter().map(|(_, bytes)| bytes).sum::<u64>());
            let moved = match made_beside(operations, at) {
                Some(true) => written,
                Some(false) => 0,
                None => read.saturating_add(written),
            };
            found.operations += 1;
            found.flops = found.flops.saturating_add(flops(operation, compiled.batch));
            // Once for each part of the batch.
            found.moved = found.moved.saturating_add(moved.saturating_mul(compiled.tables.micro_batches));
        }
        found
    }
}
