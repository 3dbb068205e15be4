use crate::program::Slot;
use crate::program::encoding::record;
use crate::program::indices::Indices;
use crate::program::op::{Edge, Gradient, Reads, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Some rows of each sample, chosen by the sample's own indices.
    ///
    /// * Inputs: x `[rows, width]`, and indices `[count]`, each below `rows`. If another operation computes the indices, one that is too large
    ///   gives a row of NaN.
    /// * The gradient of x reads the indices. A row that is taken several times gets the sum.
    pub struct Take {
        /// Rows of x.
        pub rows: u64,
        /// Elements of a row.
        pub width: u64,
        /// Indices a sample.
        pub count: u64,
    }
}

impl Rule for Take {
    fn output(&self) -> Shape {
        Shape::new(&[self.count, self.width])
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads::inputs(&[1]))])]
    }

    fn indices(&self) -> Vec<Indices> {
        vec![Indices::below(self.rows, "step", Slot::Input(1), self.count)]
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge { rule: "Take", arguments: Vec::new(), inputs: inputs.to_vec(), output: self.output() }]
    }
}
