use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Reads, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// `exp(x) / sum(exp(x))` along one axis, or its logarithm.
    ///
    /// * Input: x.
    /// * The gradient reads y.
    pub struct Softmax {
        /// Dimensions of x and y.
        pub shape: Shape,
        /// Positions before the axis.
        pub outer: u64,
        /// Length of the axis.
        pub classes: u64,
        /// Positions after the axis.
        pub inner: u64,
        /// Whether y is the logarithm.
        pub logarithm: bool,
    }
}

impl Rule for Softmax {
    const NAME: &'static str = "Softmax";

    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::in_place(&[(0, Reads::OUTPUT)])]
    }

    fn in_place(&self) -> bool {
        true
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}
