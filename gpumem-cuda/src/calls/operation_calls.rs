//! The calls of operations that run as one.

use super::Call;
use gpumem_core::program::{Phase, Program};

/// A fusion group with its calls: one operation, or several that run as one. Groups run in the order of their list, which may differ from the order
/// of operations in the program.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationCalls {
    /// Index of its first operation.
    pub first: usize,
    /// Number of its consecutive operations, at least 1.
    pub count: usize,
    /// Indices of its operations from elsewhere in the program, ascending.
    pub moved: Vec<usize>,
    /// Its calls, in order.
    pub calls: Vec<Call>,
}

impl OperationCalls {
    /// Returns the indices of all its operations, ascending.
    pub fn operations(&self) -> Vec<usize> {
        let mut all: Vec<usize> = (self.first..self.first + self.count).chain(self.moved.iter().copied()).collect();
        all.sort_unstable();
        all
    }

    /// Returns the phase of its last operation: an output that is recomputed together with its gradient belongs to the backward pass.
    pub fn phase(&self, program: &Program) -> Phase {
        program.operations[self.first + self.count - 1].phase()
    }
}
