use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Op, Reads, Rule, Sequence};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec::Vec;

record! {
    /// Concatenation of values along one axis.
    ///
    /// * Inputs: the values, which agree in all other dimensions.
    /// * The gradient of each reads nothing.
    pub struct Concat {
        /// The axis, counted from 0 without the batch.
        pub axis: u64,
        /// Length of each value along the axis.
        pub lengths: Vec<u64>,
        /// Dimensions of the output.
        pub shape: Shape,
    }
}

impl Concat {
    /// Returns the rows of a sample: positions before the axis.
    pub fn outer(&self) -> u64 {
        product(self.shape.dims().get(..self.axis as usize).unwrap_or_default())
    }

    /// Returns the elements that each value adds to a row.
    pub fn parts(&self) -> Vec<u64> {
        let after = (self.axis as usize).saturating_add(1);
        let inner = product(self.shape.dims().get(after..).unwrap_or_default());
        self.lengths.iter().map(|length| length.saturating_mul(inner)).collect()
    }
}

impl Rule for Concat {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        (0..self.lengths.len()).map(|branch| Gradient::computed(&[(branch as u8, Reads::NOTHING)])).collect()
    }

    /// Returns any layout for maps that are joined along their channels.
    fn layouts(&self) -> Layouts {
        if self.axis != 0 || self.shape.as_map().is_none() {
            return Layouts::Dense;
        }
        let inputs = self.lengths.iter().map(|&channels| self.shape.with(0, channels));
        Layouts::Maps(inputs.chain([self.shape]).collect())
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let axis = sequence.of_all()?;
        if axis as u64 == self.axis {
            return Err(Sequence::refusal());
        }
        Ok((Concat { shape: sequence.cut(self.shape, axis), ..self.clone() }.into(), axis))
    }

    /// Joins the values one by one.
    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let mut edges = Vec::new();
        inputs[1..].iter().fold(inputs[0], |joined, &next| {
            let axis = self.axis as usize;
            let output = joined.with(axis, joined.dims()[axis].saturating_add(next.dims()[axis]));
            let inputs = [joined, next].to_vec();
            edges.push(Edge { rule: "Concat", arguments: [self.axis].to_vec(), inputs, output });
            output
        });
        edges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// A damaged program may name any axis.
    #[test]
    fn an_axis_that_is_not_there_has_nothing_beside_it() {
        for axis in [4, 498, u64::MAX] {
            let op = Concat { axis, lengths: vec![2, 5], shape: Shape::new(&[7, 4, 3]) };
            assert_eq!((op.outer(), op.parts()), (1, vec![2, 5]), "{axis}");
        }
    }
}
