use super::Pointwise;
use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Op, Reads, Rule, Saved, Sequence};
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A function of one number with two slopes, for each element, whose output no gradient reads: `y = f(x)`.
    ///
    /// * Input: x.
    /// * Saves a bit for each element, [`Role::Bit`], in the order in which x lies: whether the slope there is another one than at an output
    ///   of 0. That of element `i`, counted over all samples, is bit `i % 8` of byte `i / 8`. The gradient reads nothing else, and a NaN
    ///   counts as another slope.
    /// * Lowering makes it of a [`Pointwise`]: no layer builds it.
    pub struct Rectifier {
        /// The function: one with an [`other_side`](crate::program::function::FunctionRow::other_side).
        pub of: Pointwise,
    }
}

impl Rectifier {
    /// Outputs of the function on both sides: without and with the bit.
    pub fn sides(&self) -> [f32; 2] {
        [0.0, self.of.function.row().other_side.unwrap_or(0.0)]
    }
}

impl Rule for Rectifier {
    const NAME: &'static str = "Rectifier";

    fn output(&self) -> Shape {
        self.of.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::in_place(&[(0, Reads::SAVED)])]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved::each(self.of.shape, Role::Bit)]
    }

    fn in_place(&self) -> bool {
        true
    }

    fn layouts(&self) -> Layouts {
        Layouts::Alike
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        self.of.stepped(sequence)
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}
