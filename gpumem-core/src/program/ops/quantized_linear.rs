use super::Product;
use crate::number::Coding;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Op, Reads, Rule, Sequence};
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Linear layer with a quantized weight: `y = x W^T + b`. An element of W is `entry[code] * scale`, with one scale for each block.
    ///
    /// * Inputs: x, the codes and the scales of W and, if the product has one, b.
    /// * An element of W is rounded to f32, and then to the network's format, before it is multiplied. W itself is never in memory: a backend
    ///   decodes a part of it at a time, in memory whose size does not depend on W.
    /// * The gradient of x reads codes and scales. Neither W nor b has a gradient, since a quantized layer is not trained.
    pub struct CodedProduct {
        /// The encoding of numbers as codes.
        pub coding: Coding,
        /// The linear layer, with the storage order of its weight.
        pub product: Product,
    }
}

impl CodedProduct {
    /// The index of the input b.
    pub const BIAS: u8 = 3;

    /// Returns the bytes of the codes and the number of scales. `None` if W has no elements or too many to count.
    pub fn sizes(&self) -> Option<[u64; 2]> {
        let elements = self.product.in_features.checked_mul(self.product.out_features)?;
        (elements > 0).then(|| [elements.div_ceil(self.coding.packed()), self.coding.scales(elements)])
    }
}

impl Rule for CodedProduct {
    fn output(&self) -> Shape {
        self.product.output()
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads::inputs(&[1, 2]))])]
    }

    fn layouts(&self) -> Layouts {
        self.product.layouts()
    }

    fn macs(&self) -> u64 {
        self.product.macs()
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let (product, axis) = self.product.of_steps(sequence)?;
        Ok((CodedProduct { coding: self.coding, product }.into(), axis))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        self.product.edges(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged program may have any sizes.
    #[test]
    fn codes_and_scales_are_counted() {
        let sizes = |coding, [out_features, in_features]: [u64; 2]| {
            let shape = Shape::new(&[out_features]);
            let product = Product { rows: 1, in_features, out_features, bias: false, transposed: false, shape };
            CodedProduct { coding, product }.sizes()
        };
        assert_eq!(sizes(Coding::Nf4, [3, 43]), Some([65, 3]));
        assert_eq!(sizes(Coding::Int8, [3, 43]), Some([129, 1]));
        assert_eq!((sizes(Coding::Nf4, [0, 3]), sizes(Coding::Int8, [1 << 40, 1 << 40])), (None, None));
    }
}
