use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Rule};
use crate::shape::Shape;
use alloc::vec::Vec;

record! {
    /// Rows of a table for some time steps of a sequence. The state says how many time steps came before the first of them.
    ///
    /// * Input: the table `[rows, width]`. A time step beyond it gets its last row.
    /// * It runs in inference only, so it has no gradient.
    pub struct Positions {
        /// Rows of the table.
        pub rows: u64,
        /// Elements of a row.
        pub width: u64,
        /// Time steps of this call.
        pub count: u64,
    }
}

impl Rule for Positions {
    fn output(&self) -> Shape {
        Shape::new(&[self.count, self.width])
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn is_positioned(&self) -> bool {
        true
    }

    /// Returns none: the operation that it decodes for has the assertions.
    fn edges(&self, _inputs: &[Shape]) -> Vec<Edge> {
        Vec::new()
    }
}
