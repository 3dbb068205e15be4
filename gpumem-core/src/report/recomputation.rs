//! What of a training step is computed a second time, and what that takes.

use super::roofline::{flops, traffic};
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
    /// Bytes that they read and write.
    pub moved: u64,
}

impl Recomputation {
    /// That of a program; none of one that cannot be read.
    pub fn of(compiled: &Compiled) -> Recomputation {
        let Ok(placed) = place(compiled) else { return Recomputation::default() };
        let is_again = |operation: &&Operation| matches!(operation.action, Action::Run { pass: Pass::Again, .. });
        let mut found = Recomputation::default();
        for operation in placed.program.operations.iter().filter(is_again) {
            let moved = traffic(&placed, operation).into_iter().flatten();
            // Once for each part of the batch.
            let moved = moved.map(|(_, bytes)| bytes.saturating_mul(compiled.tables.micro_batches));
            found.operations += 1;
            found.flops = found.flops.saturating_add(flops(operation, compiled.batch));
            found.moved = moved.fold(found.moved, u64::saturating_add);
        }
        found
    }
}
