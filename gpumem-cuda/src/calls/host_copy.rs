//! Copies between host memory and the arena that overlap with other work: see `gpumem_core::lower::offload`.

use super::Argument;
use std::slice;

/// A copy between host memory and the arena, or the wait for one.
///
/// A chunk of optimizer state comes into the arena and goes back. An activation leaves the arena and comes back.
#[derive(Clone, Debug, PartialEq)]
pub enum Passage {
    /// Copies optimizer state into a staging buffer, after the buffer's previous content has left it.
    Fetch {
        /// The number of the buffer.
        buffer: usize,
        /// The copies into it.
        copies: Vec<Copy>,
    },
    /// Makes later work wait for the copies into a buffer.
    Await {
        /// The number of the buffer.
        buffer: usize,
    },
    /// Copies a staging buffer to host memory, after all earlier work.
    Store {
        /// The number of the buffer.
        buffer: usize,
        /// The copies out of it.
        copies: Vec<Copy>,
    },
    /// Makes later work wait for all those copies.
    Settle,
    /// Copies an activation that is not used for a while to host memory, after all earlier work.
    Leave {
        /// The whole tensor.
        copy: Copy,
    },
    /// Makes later work wait for the copy of an activation to host memory.
    Left {
        /// The activation's tensor in host memory.
        host: Argument,
    },
    /// Copies an activation back into the arena, after all earlier work. Until then other tensors may use that memory.
    Return {
        /// The whole tensor.
        copy: Copy,
    },
    /// Makes later work wait for the copy of an activation from host memory.
    Returned {
        /// The activation's tensor in host memory.
        host: Argument,
    },
}

impl Passage {
    /// Returns the copies that it makes; none if it only waits.
    pub fn copies(&self) -> &[Copy] {
        match self {
            Passage::Fetch { copies, .. } | Passage::Store { copies, .. } => copies,
            Passage::Leave { copy } | Passage::Return { copy } => slice::from_ref(copy),
            Passage::Await { .. } | Passage::Settle | Passage::Left { .. } | Passage::Returned { .. } => &[],
        }
    }

    /// True if it copies into the arena.
    pub fn arrives(&self) -> bool {
        matches!(self, Passage::Fetch { .. } | Passage::Return { .. })
    }
}

/// A range of bytes of a tensor on the host, and the arena tensor whose first bytes hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The tensor in host memory.
    pub host: Argument,
    /// Offset of the range in the host tensor, in bytes.
    pub at: u64,
    /// The tensor in the arena.
    pub arena: Argument,
    /// Length of the range, in bytes.
    pub bytes: u64,
}
