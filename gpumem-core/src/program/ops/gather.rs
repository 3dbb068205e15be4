use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Reads, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// One row of a table for each index.
    ///
    /// * Inputs: indices `[count]`, each below `rows`, and the table `[rows, width]`.
    /// * The gradient of the table reads the indices.
    pub struct Gather {
        /// Rows of the table.
        pub rows: u64,
        /// Elements of a row.
        pub width: u64,
        /// Indices a sample.
        pub count: u64,
        /// The row that gets no gradient, if there is one.
        pub padding: Option<u64>,
    }
}

impl Rule for Gather {
    const NAME: &'static str = "Gather";

    fn output(&self) -> Shape {
        Shape::new(&[self.count, self.width])
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(1, Reads::inputs(&[0]))])]
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Gather", &[self.width], inputs[0], self.output())]
    }
}
