use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Op, Reads, Rule, Sequence};
use crate::shape::Shape;
use alloc::string::String;
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
        /// True if y is the logarithm.
        pub logarithm: bool,
    }
}

impl Rule for Softmax {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::in_place(&[(0, Reads::OUTPUT)])]
    }

    fn in_place(&self) -> bool {
        true
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let (axis, [outer, inner]) = sequence.around(self.shape, [self.outer, self.classes, self.inner])?;
        Ok((Softmax { shape: sequence.cut(self.shape, axis), outer, inner, ..self.clone() }.into(), axis))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}
