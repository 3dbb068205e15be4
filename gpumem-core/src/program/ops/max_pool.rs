use super::Window;
use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule, Saved};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Maximum over windows.
    ///
    /// * Input: x `[channels, H, W]`.
    /// * Saves where in its window each maximum is, which is all that the gradient reads: see [`MaxPool::place_role`].
    pub struct MaxPool {
        /// Channels.
        pub channels: u64,
        /// What slides over x. Padding counts as minus infinity.
        pub window: Window,
        /// Whether the windows are as many as the output has elements, instead of sliding: row `i` is of rows `floor(i * H / H')` up
        /// to, not including, `ceil((i + 1) * H / H')`, columns likewise. The window's kernel is then as large as any of them.
        pub adaptive: bool,
        /// Height and width of x.
        pub input: [u64; 2],
        /// Height and width of y.
        pub output: [u64; 2],
    }
}

impl MaxPool {
    /// What says which element of its window a maximum is, counted row by row: a byte, but for windows of more than 255 elements.
    pub fn place_role(&self) -> Role {
        if product(&self.window.kernel_size) < 256 { Role::Byte } else { Role::Index }
    }
}

impl Rule for MaxPool {
    const NAME: &'static str = "MaxPool";

    fn output(&self) -> Shape {
        Shape::new(&[self.channels, self.output[0], self.output[1]])
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads::SAVED)])]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved::each(self.output(), self.place_role())]
    }

    fn layouts(&self) -> Layouts {
        let [height, width] = self.input;
        Layouts::Maps(vec![Shape::new(&[self.channels, height, width]), self.output()])
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let (rule, numbers) = match self.adaptive {
            false => ("Pool", self.window.proof(self.input, self.output)),
            true => ("AdaptivePool", self.output.to_vec()),
        };
        vec![Edge::new(rule, &numbers, inputs[0], self.output())]
    }
}
