//! What a network with a cache keeps of a sequence from one run to the next.

use super::{Operation, Program, Slot, TensorId};
use crate::number::Role;
use crate::shape::Shape;
use alloc::vec::Vec;

/// What an operation keeps of a sequence, for each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What it is called behind the layer's name.
    pub name: &'static str,
    /// Its dimensions.
    pub shape: Shape,
    /// What its elements are for.
    pub role: Role,
    /// Whether it has a row for each step that can be kept. Else it says what all steps so far come to, is as large however many there
    /// are, and cannot go back to an earlier step.
    pub grows: bool,
}

impl Kept {
    /// A row for each step.
    pub fn rows(name: &'static str, [steps, row]: [u64; 2]) -> Kept {
        Kept { name, shape: Shape::new(&[steps, row]), role: Role::Activation, grows: true }
    }

    /// What the steps so far come to.
    pub fn state(name: &'static str, dims: &[u64], role: Role) -> Kept {
        Kept { name, shape: Shape::new(dims), role, grows: false }
    }
}

impl Operation {
    /// The tensors in which it keeps something of a sequence.
    pub fn caches(&self) -> Vec<(TensorId, Kept)> {
        let all = self.forward().map(|op| op.caches()).unwrap_or_default();
        (0..).zip(all).filter_map(|(index, kept)| Some((self.read(Slot::Cache(index))?, kept))).collect()
    }
}

impl Program {
    /// The tensors of states that cannot go back to an earlier step.
    pub fn states(&self) -> Vec<TensorId> {
        let caches = self.operations.iter().flat_map(Operation::caches);
        caches.filter(|(_, kept)| !kept.grows).map(|(tensor, _)| tensor).collect()
    }
}
