//! What passes between host memory and the arena, beside everything else: see `gpumem_core::lower::offload`.

use super::Argument;
use std::slice;

/// One step of a piece of optimizer state on its way into the arena and back, or of an activation on its way out of it and back.
#[derive(Clone, Debug, PartialEq)]
pub enum Passage {
    /// Into a staging buffer, as soon as what was there has left it.
    Fetch {
        /// The number of the buffer.
        buffer: usize,
        /// What goes there.
        copies: Vec<Copy>,
    },
    /// Lets what follows come after what was fetched into a buffer.
    Await {
        /// The number of the buffer.
        buffer: usize,
    },
    /// From a staging buffer, as soon as all that came before is done.
    Store {
        /// The number of the buffer.
        buffer: usize,
        /// What leaves it.
        copies: Vec<Copy>,
    },
    /// Lets what follows come after all of that.
    Settle,
    /// From the arena, as soon as all that came before is done: an activation that nobody touches for a while.
    Leave {
        /// The whole tensor.
        copy: Copy,
    },
    /// Lets what follows come after the copy of an activation to host memory.
    Left {
        /// Its tensor there.
        host: Argument,
    },
    /// Into the arena again, as soon as all that came before is done: until then something else may lie there.
    Return {
        /// The whole tensor.
        copy: Copy,
    },
    /// Lets what follows come after the copy of an activation from host memory.
    Returned {
        /// Its tensor there.
        host: Argument,
    },
}

impl Passage {
    /// What is copied.
    pub fn copies(&self) -> &[Copy] {
        match self {
            Passage::Fetch { copies, .. } | Passage::Store { copies, .. } => copies,
            Passage::Leave { copy } | Passage::Return { copy } => slice::from_ref(copy),
            Passage::Await { .. } | Passage::Settle | Passage::Left { .. } | Passage::Returned { .. } => &[],
        }
    }

    /// Whether that comes into the arena.
    pub fn arrives(&self) -> bool {
        matches!(self, Passage::Fetch { .. } | Passage::Return { .. })
    }
}

/// Bytes of a tensor in host memory that lie, for a while, at the beginning of one in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The tensor in host memory.
    pub host: Argument,
    /// Bytes in front of them there.
    pub at: u64,
    /// The tensor in the arena.
    pub arena: Argument,
    /// How many.
    pub bytes: u64,
}
