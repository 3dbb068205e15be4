use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Op, Rule, Sequence};
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec::Vec;

record! {
    /// Sum of several values of one shape. A value that all samples share is added to each.
    ///
    /// * Inputs: the values.
    /// * The gradient of each value is the gradient of the output.
    pub struct Sum {
        /// Number of values.
        pub branches: u64,
        /// Dimensions of every value and of the sum.
        pub shape: Shape,
    }
}

impl Rule for Sum {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        (0..self.branches).map(|branch| Gradient::Passes(branch as u8)).collect()
    }

    fn in_place(&self) -> bool {
        true
    }

    fn layouts(&self) -> Layouts {
        Layouts::Alike
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let axis = sequence.of_all()?;
        let op = Sum { shape: sequence.cut(self.shape, axis), ..self.clone() };
        Ok((op.into(), axis))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let pair = |other: &Shape| Edge {
            rule: "Equal",
            arguments: Vec::new(),
            inputs: [inputs[0], *other].to_vec(),
            output: self.shape,
        };
        inputs[1..].iter().map(pair).collect()
    }
}
