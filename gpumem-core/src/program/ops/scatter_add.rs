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
    /// A value with others added to it along an axis, by indices.
    ///
    /// * Inputs: x, indices, and what is added, src. Indices and src have the dimensions of x with `count` along the axis. An index that
    ///   another operation makes and that is not below the length of x there adds nothing.
    /// * `y[i, r, j] = x[i, r, j] + sum of src[i, c, j] over the places c with index[i, c, j] = r`, in the order of the places, where i and j are
    ///   positions before and after the axis.
    /// * The gradient of x is that of the output. That of src is taken from it by the indices, which it reads.
    pub struct ScatterAdd {
        /// Dimensions of x.
        pub input: Shape,
        /// The axis, counted from 0 without the batch.
        pub axis: u64,
        /// Indices along the axis.
        pub count: u64,
    }
}

impl ScatterAdd {
    /// Returns positions before the axis, the length of x there, and positions after it.
    pub fn extents(&self) -> [u64; 3] {
        extents(self.input, self.axis)
    }

    /// True if there is an axis with elements: a damaged program may say anything.
    pub fn is_sound(&self) -> bool {
        (self.axis as usize) < self.input.rank() && self.count > 0 && !self.extents().contains(&0)
    }

    /// Returns the dimensions of the indices and of what is added.
    pub fn source(&self) -> Shape {
        self.input.with(self.axis as usize, self.count)
    }
}

impl Rule for ScatterAdd {
    fn output(&self) -> Shape {
        self.input
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(2, Reads::inputs(&[1]))]), Gradient::Passes(0)]
    }

    fn indices(&self) -> Vec<Indices> {
        let [_, length, _] = self.extents();
        vec![Indices::below(length, "index", Slot::Input(1), product(self.source().dims()))]
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let axis = sequence.of_all()?;
        if axis as u64 == self.axis {
            return Err(Sequence::refusal());
        }
        Ok((ScatterAdd { input: sequence.cut(self.input, axis), ..self.clone() }.into(), axis))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let (rule, arguments) = ("ScatterAdd", vec![self.axis]);
        vec![Edge { rule, arguments, inputs: inputs.to_vec(), output: self.output() }]
    }
}
