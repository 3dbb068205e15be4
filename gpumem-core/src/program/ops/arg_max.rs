use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// The position of the largest index, and the first of several that are equal.
    ///
    /// * Input: indices `[count]`. The output is an index, too.
    pub struct ArgMax {
        /// Indices a sample.
        pub count: u64,
    }
}

impl Rule for ArgMax {
    fn output(&self) -> Shape {
        Shape::new(&[1])
    }

    fn makes_indices(&self) -> bool {
        true
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("ArgMax", &[], inputs[0], self.output())]
    }
}
