use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A value that all samples share, copied to each of them.
    ///
    /// * Inputs: the value, and one that differs between samples, which gives their number.
    /// * The gradient is summed over the samples and reads nothing.
    pub struct Expand {
        /// Dimensions of the value.
        pub shape: Shape,
    }
}

impl Rule for Expand {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::Passes(0)]
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(&inputs[..1])
    }
}
