//! What passes between host memory and the arena, beside everything else: see `gpumem_core::lower::offload`.

use super::Argument;

/// One step of a piece on its way into the arena and back.
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
}

impl Passage {
    /// What is copied.
    pub fn copies(&self) -> &[Copy] {
        match self {
            Passage::Fetch { copies, .. } | Passage::Store { copies, .. } => copies,
            Passage::Await { .. } | Passage::Settle => &[],
        }
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
