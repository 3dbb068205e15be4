use crate::program::Slot;
use crate::program::encoding::record;
use crate::program::indices::Indices;
use crate::program::op::{Edge, Gradient, Op, Reads, Rule, Sequence};
use crate::shape::Shape;
use alloc::string::String;
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
        /// The row that gets no gradient; `None` if all get one.
        pub padding: Option<u64>,
    }
}

impl Rule for Gather {
    fn output(&self) -> Shape {
        Shape::new(&[self.count, self.width])
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(1, Reads::inputs(&[0]))])]
    }

    fn indices(&self) -> Vec<Indices> {
        vec![Indices::below(self.rows, "token", Slot::Input(0), self.count)]
    }

    /// Decodes a list of indices, but not several lists.
    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        match (sequence.of_first()?, sequence.inputs[0].rank()) {
            (0, 1) => Ok((Gather { count: sequence.chunk, ..self.clone() }.into(), 0)),
            _ => Err(Sequence::refusal()),
        }
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Gather", &[self.width], inputs[0], self.output())]
    }
}
