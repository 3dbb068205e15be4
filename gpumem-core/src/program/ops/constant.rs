use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Rule};
use crate::shape::Shape;
use alloc::vec::Vec;

record! {
    /// Numbers that are written in the network.
    ///
    /// * Input: none.
    pub struct Constant {
        /// Dimensions of the output.
        pub shape: Shape,
        /// Its elements in order, or one number for all of them.
        pub numbers: Vec<f64>,
    }
}

/// Most numbers in one place of a network. They are part of the program and of a kernel's source, so larger constants must be formulas,
/// which have operations of their own.
pub const MOST_NUMBERS: usize = 4096;

impl Constant {
    /// Returns the numbers in f32. `None` if there are neither one nor as many as elements, or if f32 cannot represent one.
    pub fn values(&self) -> Option<Vec<f32>> {
        let count = self.numbers.len();
        let fits = count == 1 || count <= MOST_NUMBERS && Some(count as u64) == self.shape.elements();
        let values: Vec<f32> = self.numbers.iter().map(|&number| number as f32).collect();
        (fits && self.shape.elements()? > 0 && values.iter().all(|value| value.is_finite())).then_some(values)
    }
}

impl Rule for Constant {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn edges(&self, _: &[Shape]) -> Vec<Edge> {
        Edge::same(&[self.shape])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// A damaged program may have any numbers.
    #[test]
    fn there_are_as_many_numbers_as_elements_or_one() {
        let of = |numbers: &[f64]| Constant { shape: Shape::new(&[2, 2]), numbers: numbers.to_vec() }.values();
        assert_eq!(of(&[1.0, -2.0, 0.5, 0.0]), Some(vec![1.0, -2.0, 0.5, 0.0]));
        assert_eq!(of(&[0.25]), Some(vec![0.25]));
        assert_eq!((of(&[]), of(&[1.0; 3]), of(&[1e39]), of(&[f64::NAN; 4])), (None, None, None, None));
        let large = Constant { shape: Shape::new(&[MOST_NUMBERS as u64 + 1]), numbers: vec![0.0; MOST_NUMBERS + 1] };
        assert_eq!(large.values(), None);
    }
}
