use crate::number::Coding;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Rule};
use crate::shape::Shape;
use alloc::vec::Vec;

record! {
    /// A weight from its codes and their scales: `entry[code] * scale`, with one scale for each block.
    ///
    /// * Inputs: codes and scales. Output: the weight in the network's format, one for the whole batch. The product is rounded to f32, and
    ///   then to the format.
    /// * No gradient: codes are not trained.
    /// * Its output is not kept for the backward pass. It is computed again before each operation that reads it: see
    ///   [`Rule::is_fleeting`].
    pub struct Dequantize {
        /// How codes are numbers.
        pub coding: Coding,
        /// Dimensions of the weight.
        pub shape: Shape,
    }
}

impl Dequantize {
    /// Bytes of the codes and number of the scales, if there are any and they can be counted.
    pub fn sizes(&self) -> Option<[u64; 2]> {
        let elements = self.shape.elements().filter(|&elements| elements > 0)?;
        Some([elements.div_ceil(self.coding.packed()), self.coding.scales(elements)])
    }
}

impl Rule for Dequantize {
    const NAME: &'static str = "Dequantize";

    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn is_fleeting(&self) -> bool {
        true
    }

    fn edges(&self, _: &[Shape]) -> Vec<Edge> {
        Edge::same(&[self.shape])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged program may have any shape.
    #[test]
    fn codes_and_scales_are_counted() {
        let sizes = |coding, dims: &[u64]| Dequantize { coding, shape: Shape::new(dims) }.sizes();
        assert_eq!(sizes(Coding::Nf4, &[3, 43]), Some([65, 3]));
        assert_eq!(sizes(Coding::Int8, &[3, 43]), Some([129, 1]));
        assert_eq!((sizes(Coding::Nf4, &[0, 3]), sizes(Coding::Int8, &[1 << 40, 1 << 40])), (None, None));
    }
}
