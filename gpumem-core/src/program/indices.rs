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
    /// True if those of a sample must not fall from one to the next.
    pub ordered: bool,
}

impl Indices {
    /// So many in each sample, all below a limit.
    pub fn below(limit: u64, what: &'static str, slot: Slot, each: u64) -> Indices {
        Indices { what, slot, each, limit, allowed: Allowed::Nothing, ordered: false }
    }

    /// So many in each sample, of any value, which do not fall from one to the next.
    pub fn ordered(what: &'static str, slot: Slot, each: u64) -> Indices {
        Indices { ordered: true, ..Indices::below(u64::MAX, what, slot, each) }
    }

    /// Whether this index is a mistake.
    pub fn refuses(&self, index: u32) -> bool {
        u64::from(index) >= self.limit && !self.allowed.allows(index)
    }

    /// Looks at all of them.
    ///
    /// # Errors
    /// [`Error::Index`] of the first that is a mistake, with its place among these; [`Error::Order`] of the first that is less than the one
    /// before it in its sample, where they may not fall.
    pub fn check(&self, indices: impl IntoIterator<Item = u32>) -> Result<(), Error> {
        let mut before = 0;
        for (position, value) in (0u64..).zip(indices) {
            if self.refuses(value) {
                return Err(Error::Index { what: self.what, position, value, limit: self.limit });
            }
            let is_first = position.checked_rem(self.each).is_none_or(|place| place == 0);
            if self.ordered && !is_first && value < before {
                return Err(Error::Order { what: self.what, position, value, before });
            }
            before = value;
        }
        Ok(())
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
