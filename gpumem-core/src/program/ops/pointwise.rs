use crate::program::encoding::record;
use crate::program::functions::{Function, Kept};
use crate::program::op::{Edge, Gradient, Layouts, Op, Reads, Rule, Sequence};
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A function of one number, for each element: `y = f(x)`.
    ///
    /// * Input: x.
    /// * The gradient reads x or y, as the function's row says.
    pub struct Pointwise {
        /// The function.
        pub function: Function,
        /// The values of its arguments.
        pub arguments: Vec<f64>,
        /// Dimensions of x and y.
        pub shape: Shape,
    }
}

impl Rule for Pointwise {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        let reads = match self.function.row().kept {
            Kept::Input => Reads::inputs(&[0]),
            Kept::Output => Reads::OUTPUT,
            Kept::Nothing => Reads::NOTHING,
        };
        vec![Gradient::in_place(&[(0, reads)])]
    }

    fn in_place(&self) -> bool {
        true
    }

    fn layouts(&self) -> Layouts {
        Layouts::Alike
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let axis = sequence.of_first()?;
        let op = Pointwise { shape: sequence.cut(self.shape, axis), ..self.clone() };
        Ok((op.into(), axis))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}
