use crate::program::encoding::record;
use crate::program::formula;
use crate::program::op::{Edge, Gradient, Inputs, Layouts, Op, Reads, Rule, Sequence};
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A formula that the user wrote, for each element: `y = f(x)`.
    ///
    /// * Input: x.
    /// * The gradient reads the operands of the derivative: x, y, both or neither.
    pub struct Formula {
        /// The formula.
        pub value: formula::Formula,
        /// Its derivative, of x and y.
        pub slope: formula::Formula,
        /// Dimensions of x and y.
        pub shape: Shape,
    }
}

impl Rule for Formula {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        let inputs = if self.slope.reads_x() { Inputs::of(&[0]) } else { Inputs::NONE };
        vec![Gradient::in_place(&[(0, Reads { inputs, output: self.slope.reads_y(), ..Reads::NOTHING })])]
    }

    fn in_place(&self) -> bool {
        true
    }

    fn layouts(&self) -> Layouts {
        Layouts::Alike
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let axis = sequence.of_first()?;
        let op = Formula { shape: sequence.cut(self.shape, axis), ..self.clone() };
        Ok((op.into(), axis))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}
