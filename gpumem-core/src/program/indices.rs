//! Whole numbers of the user's that something is looked up by: what they may be, as a program says it.

use super::{Action, Class, Operation, Pass, Program, Slot};
use crate::error::Error;
use alloc::vec::Vec;

/// Indices beyond the limit that are no mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// None.
    Nothing,
    /// This one.
    One(u32),
    /// What is negative as an `i32`.
    Negative,
}

impl Allowed {
    /// Whether this index is one of them.
    pub fn allows(self, index: u32) -> bool {
        match self {
            Allowed::Nothing => false,
            Allowed::One(allowed) => index == allowed,
            Allowed::Negative => index.cast_signed() < 0,
        }
    }
}

/// Whole numbers of the user's that must be below a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indices {
    /// What one is, for messages.
    pub what: &'static str,
    /// Where they are.
    pub slot: Slot,
    /// How many a sample has.
    pub each: u64,
    /// The first that is too large.
    pub limit: u64,
    /// Those beyond it that are no mistake.
    pub allowed: Allowed,
}

impl Indices {
    /// So many in each sample, all below a limit.
    pub fn below(limit: u64, what: &'static str, slot: Slot, each: u64) -> Indices {
        Indices { what, slot, each, limit, allowed: Allowed::Nothing }
    }

    /// Whether this index is a mistake.
    pub fn refuses(&self, index: u32) -> bool {
        u64::from(index) >= self.limit && !self.allowed.allows(index)
    }

    /// Looks at all of them.
    ///
    /// # Errors
    /// [`Error::Index`] of the first that is a mistake, with its place among these.
    pub fn check(&self, indices: impl IntoIterator<Item = u32>) -> Result<(), Error> {
        match (0..).zip(indices).find(|(_, index)| self.refuses(*index)) {
            None => Ok(()),
            Some((position, value)) => Err(Error::Index { what: self.what, position, value, limit: self.limit }),
        }
    }

    /// The same of indices as they are in memory.
    ///
    /// # Errors
    /// As for [`Indices::check`].
    pub fn check_bytes(&self, bytes: &[u8]) -> Result<(), Error> {
        self.check(bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])))
    }
}

impl Operation {
    /// What of the user's numbers it looks something up by. What another operation of the program makes is not among them: it is as
    /// it should be, and not there yet when a step begins.
    pub fn indices(&self, program: &Program) -> Vec<Indices> {
        let all = match &self.action {
            Action::Run { op, pass: Pass::Forward } => op.indices(),
            Action::Loss(criterion) => criterion.indices(),
            _ => Vec::new(),
        };
        let is_given = |indices: &Indices| {
            let tensor = self.read(indices.slot).and_then(|id| program.tensors.get(id as usize));
            tensor.is_some_and(|tensor| matches!(tensor.class, Class::Input | Class::Target))
        };
        all.into_iter().filter(is_given).collect()
    }
}
