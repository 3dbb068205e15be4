use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Op, Reads, Rule, Saved, Sequence};
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Elements along an axis divided by their Euclidean norm, `x / max(|x|, eps)`.
    ///
    /// * Input: x.
    /// * Saves the norms; the gradient reads them and y.
    pub struct L2Norm {
        /// Dimensions of x and y.
        pub shape: Shape,
        /// Positions before the axis.
        pub outer: u64,
        /// Length of the axis.
        pub length: u64,
        /// Positions after the axis.
        pub inner: u64,
        /// The least divisor.
        pub eps: f64,
    }
}

impl L2Norm {
    /// True if the positions match the shape. A damaged program may have other numbers.
    pub fn is_sound(&self) -> bool {
        let elements = self.outer.checked_mul(self.length).and_then(|slabs| slabs.checked_mul(self.inner));
        let is_divisor = self.eps.is_finite() && (self.eps as f32) > 0.0;
        is_divisor && elements.is_some_and(|all| all > 0) && elements == self.shape.elements()
    }
}

impl Rule for L2Norm {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::in_place(&[(0, Reads { saved: true, ..Reads::OUTPUT })])]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved::each(Shape::new(&[self.outer, self.inner]), Role::Statistic)]
    }

    fn in_place(&self) -> bool {
        true
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let (axis, [outer, inner]) = sequence.around(self.shape, [self.outer, self.length, self.inner])?;
        Ok((L2Norm { shape: sequence.cut(self.shape, axis), outer, inner, ..self.clone() }.into(), axis))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged program may have any numbers.
    #[test]
    fn positions_that_are_not_those_of_the_shape_are_not_sound() {
        let op = L2Norm { shape: Shape::new(&[2, 3, 4]), outer: 2, length: 3, inner: 4, eps: 1e-12 };
        assert!(op.is_sound());
        assert_eq!(op.saved()[0].shape.dims(), [2, 4]);
        for changed in [
            L2Norm { outer: 3, ..op.clone() },
            L2Norm { outer: u64::MAX, ..op.clone() },
            L2Norm { length: 0, ..op.clone() },
            L2Norm { eps: 0.0, ..op.clone() },
            L2Norm { eps: f64::NAN, ..op.clone() },
        ] {
            assert!(!changed.is_sound(), "{changed:?}");
        }
    }
}
