use crate::program::Slot;
use crate::program::encoding::record;
use crate::program::indices::Indices;
use crate::program::op::{Edge, Gradient, Reads, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// The first `n` time steps of each sequence, in their order or reversed, and zeros after them.
    ///
    /// * Inputs: x `[T, D]`, and `n`, one index from 0 to T for each sample. Of x only the first `n` time steps are read.
    /// * The gradient applies this operation to the gradient of the output, and reads `n`.
    pub struct SequenceMask {
        /// Time steps of a sequence.
        pub steps: u64,
        /// Elements of a time step.
        pub width: u64,
        /// True if time step `n - 1` comes first.
        pub reverse: bool,
    }
}

impl SequenceMask {
    /// True if every length fits an index, and there are elements to copy.
    pub fn is_sound(&self) -> bool {
        self.steps > 0 && self.width > 0 && self.steps < u64::from(u32::MAX)
    }
}

impl Rule for SequenceMask {
    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.width])
    }

    fn gradients(&self) -> Vec<Gradient> {
        let of = [(0, Reads::inputs(&[1]))];
        vec![if self.reverse { Gradient::computed(&of) } else { Gradient::in_place(&of) }]
    }

    /// True unless time steps are reversed, which writes them elsewhere than they are read.
    fn in_place(&self) -> bool {
        !self.reverse
    }

    fn indices(&self) -> Vec<Indices> {
        vec![Indices::below(self.steps.saturating_add(1), "length", Slot::Input(1), 1)]
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(&inputs[..1])
    }
}
