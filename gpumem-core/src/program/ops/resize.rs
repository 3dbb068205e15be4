use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Nearest-neighbour resizing: every row and column is repeated.
    ///
    /// * Input: x `[channels, H, W]`.
    /// * The gradient reads nothing.
    pub struct Resize {
        /// Channels.
        pub channels: u64,
        /// Repetitions of each row and column.
        pub scale_factor: [u64; 2],
        /// Height and width of x.
        pub input: [u64; 2],
    }
}

impl Rule for Resize {
    fn output(&self) -> Shape {
        let scaled = |axis: usize| self.input[axis].saturating_mul(self.scale_factor[axis]);
        Shape::new(&[self.channels, scaled(0), scaled(1)])
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads::NOTHING)])]
    }

    fn layouts(&self) -> Layouts {
        let [height, width] = self.input;
        Layouts::Maps(vec![Shape::new(&[self.channels, height, width]), self.output()])
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Resize", &self.scale_factor, inputs[0], self.output())]
    }
}
