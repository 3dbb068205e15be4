use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Op, Rule, Sequence};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec::Vec;

record! {
    /// Places of the largest or smallest elements along an axis, the best first.
    ///
    /// * Input: x. The output has `k` indices in place of the axis.
    /// * A NaN is larger than any number, and of equal elements the first comes first: -0 equals 0.
    /// * Indices have no gradient.
    pub struct TopK {
        /// Dimensions of x.
        pub input: Shape,
        /// The axis, counted from 0 without the batch.
        pub axis: u64,
        /// Places that are found along the axis.
        pub k: u64,
        /// True for the smallest elements.
        pub smallest: bool,
    }
}

impl TopK {
    /// Returns positions before the axis, its length, and positions after it.
    pub fn extents(&self) -> [u64; 3] {
        extents(self.input, self.axis)
    }

    /// True if the axis has so many elements, whose places are indices: a damaged program may say anything.
    pub fn is_sound(&self) -> bool {
        let [outer, length, inner] = self.extents();
        (self.axis as usize) < self.input.rank()
            && self.k > 0
            && self.k <= length
            && length < u64::from(u32::MAX)
            && outer > 0
            && inner > 0
    }
}

/// Returns positions before an axis of a shape, its length, and positions after it.
pub(super) fn extents(shape: Shape, axis: u64) -> [u64; 3] {
    let dims = shape.dims();
    let before = dims.get(..axis as usize).unwrap_or_default();
    let after = dims.get((axis as usize).saturating_add(1)..).unwrap_or_default();
    [product(before), dims.get(axis as usize).copied().unwrap_or(1), product(after)]
}

impl Rule for TopK {
    fn output(&self) -> Shape {
        self.input.with(self.axis as usize, self.k)
    }

    fn makes_indices(&self) -> bool {
        true
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let axis = sequence.of_first()?;
        if axis as u64 == self.axis {
            return Err(Sequence::refusal());
        }
        Ok((TopK { input: sequence.cut(self.input, axis), ..self.clone() }.into(), axis))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        [Edge::new("Slice", &[self.axis, 0, self.k], inputs[0], self.output())].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_without_so_many_elements_are_not_sound() {
        let op = TopK { input: Shape::new(&[2, 3]), axis: 1, k: 3, smallest: false };
        assert!(op.is_sound());
        for changed in [
            TopK { k: 4, ..op.clone() },
            TopK { k: 0, ..op.clone() },
            TopK { axis: 2, ..op.clone() },
            TopK { axis: u64::MAX, ..op.clone() },
            TopK { input: Shape::new(&[0, 3]), ..op.clone() },
            TopK { input: Shape::new(&[1, u64::from(u32::MAX)]), ..op.clone() },
        ] {
            assert!(!changed.is_sound(), "{changed:?}");
        }
    }
}
