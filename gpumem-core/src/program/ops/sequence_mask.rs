use crate::program::Slot;
use crate::program::encoding::record;
use crate::program::indices::Indices;
use crate::program::op::{Edge, Gradient, Reads, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// The first `n` steps of each sequence, in their order or from the last to the first, and zeros after them.
    ///
    /// * Inputs: x `[T, D]`, and `n`, one index from 0 to T for each sample. What x has after the first `n` steps is not read.
    /// * The gradient is the same operation on the gradient of the output, and reads `n`.
    pub struct SequenceMask {
        /// Steps of a sequence.
        pub steps: u64,
        /// Elements of a step.
        pub width: u64,
        /// True if step `n - 1` comes first.
        pub reverse: bool,
    }
}

impl SequenceMask {
    /// True if every length is an index, and there is something to copy.
    pub fn is_sound(&self) -> bool {
        self.steps > 0 && self.width > 0 && self.steps < u64::from(u32::MAX)
    }
}

impl Rule for SequenceMask {
    const NAME: &'static str = "SequenceMask";

    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.width])
    }

    fn gradients(&self) -> Vec<Gradient> {
        let of = [(0, Reads::inputs(&[1]))];
        vec![if self.reverse { Gradient::computed(&of) } else { Gradient::in_place(&of) }]
    }

    /// Steps that change places are not where they are read.
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
