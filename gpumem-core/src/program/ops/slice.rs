use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Reads, Rule};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A part of a value along its first axis.
    ///
    /// * Input: x.
    /// * The gradient reads nothing; it is 0 outside the part.
    pub struct Slice {
        /// Dimensions of x.
        pub input: Shape,
        /// The first row of the part.
        pub start: u64,
        /// Rows of the part.
        pub length: u64,
    }
}

impl Slice {
    /// Elements of a row.
    pub fn row(&self) -> u64 {
        product(self.input.dims().get(1..).unwrap_or_default())
    }
}

impl Rule for Slice {
    const NAME: &'static str = "Slice";

    fn output(&self) -> Shape {
        self.input.with(0, self.length)
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads::NOTHING)])]
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Slice", &[self.start, self.length], inputs[0], self.output())]
    }
}
