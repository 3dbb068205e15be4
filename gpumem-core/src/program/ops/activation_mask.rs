use super::Pointwise;
use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Op, Reads, Rule, Saved, Sequence};
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// An activation with two slopes whose output no gradient reads: `y = f(x)` for each element.
    ///
    /// * Input: x.
    /// * Saves a bit for each element, [`Role::Bit`], in the order in which x is stored. The bit is 1 if the slope differs from the one at an
    ///   output of 0, or if the element is NaN. Element `i`, counted over all samples, has bit `i % 8` of byte `i / 8`. The gradient reads
    ///   nothing else.
    /// * Lowering makes it from a [`Pointwise`]: no layer builds it.
    pub struct Rectifier {
        /// The function: one with an [`other_side`](crate::program::functions::FunctionRow::other_side).
        pub of: Pointwise,
    }
}

impl Rectifier {
    /// Returns an output of the function for each value of the bit, first for 0, then for 1.
    pub fn sides(&self) -> [f32; 2] {
        [0.0, self.of.function.row().other_side.unwrap_or(0.0)]
    }
}

impl Rule for Rectifier {
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
