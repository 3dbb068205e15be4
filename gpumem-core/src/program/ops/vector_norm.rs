use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Reads, Rule, Saved};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// The norm of the elements along an axis: `(sum of |x|^p)^(1/p)`, or the largest `|x|` if `p` is infinite.
    ///
    /// * Input: x `[outer, length, inner]`.
    /// * With an infinite `p` it saves how many elements are as large as the largest. The gradient reads that, x and the norms.
    pub struct VectorNorm {
        /// The order, above 0.
        pub p: f64,
        /// Positions before the axis.
        pub outer: u64,
        /// Length of the axis.
        pub length: u64,
        /// Positions after the axis.
        pub inner: u64,
    }
}

impl VectorNorm {
    /// True if it has an axis and an order, which a damaged program may lack.
    pub fn is_sound(&self) -> bool {
        self.p > 0.0 && (self.p as f32) > 0.0 && self.length > 0 && self.inner > 0
    }

    /// True if the gradient is shared by all elements that are as large as the largest.
    pub fn has_ties(&self) -> bool {
        self.p.is_infinite()
    }
}

impl Rule for VectorNorm {
    fn output(&self) -> Shape {
        Shape::new(&[self.outer, self.inner])
    }

    fn gradients(&self) -> Vec<Gradient> {
        let reads = Reads { output: true, saved: self.has_ties(), ..Reads::inputs(&[0]) };
        vec![Gradient::computed(&[(0, reads)])]
    }

    fn saved(&self) -> Vec<Saved> {
        let ties = Saved::each(self.output(), Role::Statistic);
        if self.has_ties() { vec![ties] } else { Vec::new() }
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Reduce", &[self.length], inputs[0], self.output())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged program may have any numbers.
    #[test]
    fn orders_and_axes_that_there_are_not_are_not_sound() {
        let op = VectorNorm { p: 2.0, outer: 2, length: 3, inner: 4 };
        assert!(op.is_sound() && VectorNorm { p: f64::INFINITY, ..op.clone() }.is_sound());
        for changed in [
            VectorNorm { p: 0.0, ..op.clone() },
            VectorNorm { p: -1.0, ..op.clone() },
            VectorNorm { p: f64::NAN, ..op.clone() },
            VectorNorm { p: 1e-60, ..op.clone() },
            VectorNorm { length: 0, ..op.clone() },
            VectorNorm { inner: 0, ..op.clone() },
        ] {
            assert!(!changed.is_sound(), "{changed:?}");
        }
    }
}
