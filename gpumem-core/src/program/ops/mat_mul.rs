use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Reads, Rule};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Products of matrices that are both activations. A sample has one for each position before the last two axes.
    ///
    /// * Inputs: a `[.., rows, depth]` and b `[.., depth, columns]`, or `[.., columns, depth]` if transposed.
    /// * The gradient of each reads the other.
    pub struct MatMul {
        /// Matrices a sample.
        pub count: u64,
        /// Rows of a and y.
        pub rows: u64,
        /// Columns of a.
        pub depth: u64,
        /// Columns of y.
        pub columns: u64,
        /// True if b is transposed.
        pub transpose_b: bool,
        /// Dimensions of y.
        pub shape: Shape,
    }
}

impl Rule for MatMul {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(1, Reads::inputs(&[0]))]), Gradient::computed(&[(0, Reads::inputs(&[1]))])]
    }

    fn macs(&self) -> u64 {
        product(&[self.count, self.rows, self.depth, self.columns])
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let rule = if self.transpose_b { "MatMulTransposed" } else { "MatMul" };
        vec![Edge { rule, arguments: Vec::new(), inputs: inputs.to_vec(), output: self.shape }]
    }
}
