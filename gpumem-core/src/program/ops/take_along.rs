use super::top_k::extents;
use crate::program::Slot;
use crate::program::encoding::record;
use crate::program::indices::Indices;
use crate::program::op::{Edge, Gradient, Op, Reads, Rule, Sequence};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Elements along an axis by indices, one for each element of the output.
    ///
    /// * Inputs: x, and indices of the dimensions of x with `count` along the axis, each below the length of x there. An index that another
    ///   operation makes and that is not gives NaN.
    /// * `y[i, c, j] = x[i, index[i, c, j], j]`, where i and j are positions before and after the axis.
    /// * The gradient of x reads the indices. An element that is taken several times has the sum, in the order of the indices.
    pub struct TakeAlong {
        /// Dimensions of x.
        pub input: Shape,
        /// The axis, counted from 0 without the batch.
        pub axis: u64,
        /// Indices along the axis.
        pub count: u64,
    }
}

impl TakeAlong {
    /// Returns positions before the axis, the length of x there, and positions after it.
    pub fn extents(&self) -> [u64; 3] {
        extents(self.input, self.axis)
    }

    /// True if there is an axis with elements: a damaged program may say anything.
    pub fn is_sound(&self) -> bool {
        (self.axis as usize) < self.input.rank() && self.count > 0 && !self.extents().contains(&0)
    }
}

impl Rule for TakeAlong {
    fn output(&self) -> Shape {
        self.input.with(self.axis as usize, self.count)
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads::inputs(&[1]))])]
    }

    fn indices(&self) -> Vec<Indices> {
        let [_, length, _] = self.extents();
        vec![Indices::below(length, "index", Slot::Input(1), product(self.output().dims()))]
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let axis = sequence.of_all()?;
        if axis as u64 == self.axis {
            return Err(Sequence::refusal());
        }
        Ok((TakeAlong { input: sequence.cut(self.input, axis), ..self.clone() }.into(), axis))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let (rule, arguments) = ("TakeAlong", vec![self.axis]);
        vec![Edge { rule, arguments, inputs: inputs.to_vec(), output: self.output() }]
    }
}
