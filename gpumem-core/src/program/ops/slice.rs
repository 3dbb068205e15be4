use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Op, Reads, Rule, Sequence};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A part of a value along one axis.
    ///
    /// * Input: x.
    /// * The gradient reads nothing. It is 0 outside the part.
    pub struct Slice {
        /// Dimensions of x.
        pub input: Shape,
        /// The first row of the part.
        pub start: u64,
        /// Rows of the part.
        pub length: u64,
        /// The axis, counted from 0 without the batch.
        pub axis: u64,
    }
}

impl Slice {
    /// Returns the number of positions before the axis.
    pub fn outer(&self) -> u64 {
        product(self.input.dims().get(..self.axis as usize).unwrap_or_default())
    }

    /// Returns the rows along the axis.
    pub fn rows(&self) -> u64 {
        self.input.dims().get(self.axis as usize).copied().unwrap_or(1)
    }

    /// Returns the elements of a row: positions after the axis.
    pub fn row(&self) -> u64 {
        product(self.input.dims().get((self.axis as usize).saturating_add(1)..).unwrap_or_default())
    }
}

impl Rule for Slice {
    fn output(&self) -> Shape {
        self.input.with(self.axis as usize, self.length)
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads::NOTHING)])]
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let axis = sequence.of_first()?;
        if axis as u64 == self.axis {
            return Err(Sequence::refusal());
        }
        Ok((Slice { input: sequence.cut(self.input, axis), ..self.clone() }.into(), axis))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Slice", &[self.axis, self.start, self.length], inputs[0], self.output())]
    }
}
