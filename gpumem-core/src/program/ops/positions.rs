use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Rule};
use crate::shape::Shape;
use alloc::vec::Vec;

record! {
    /// A row of a table for each of some steps of a sequence, the first of which is as many steps behind the beginning as the state says.
    ///
    /// * Input: the table `[rows, width]`. A step beyond it has its last row.
    /// * It runs without training only, so it has no gradient.
    pub struct Positions {
        /// Rows of the table.
        pub rows: u64,
        /// Elements of a row.
        pub width: u64,
        /// Steps at hand.
        pub count: u64,
    }
}

impl Rule for Positions {
    const NAME: &'static str = "Positions";

    fn output(&self) -> Shape {
        Shape::new(&[self.count, self.width])
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn is_positioned(&self) -> bool {
        true
    }

    /// The assertions are those of the operation that it stands for.
    fn edges(&self, _inputs: &[Shape]) -> Vec<Edge> {
        Vec::new()
    }
}
