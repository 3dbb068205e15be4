use crate::program::encoding::{record, wire_enum};
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// The interpolation between the elements of a map, along each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The element at or before the position, which is computed in f32. The first position is 0, or half a step. That half is added to the row
    /// number before the multiplication.
    Nearest,
    /// A line through two elements. Before the first element the map continues with that element.
    Linear,
    /// A cubic through four elements, with PyTorch's a = -0.75.
    Cubic,
}
wire_enum!(Interpolation { Nearest, Linear, Cubic });

record! {
    /// A map of another size, interpolated between the elements of x. Row `o` of y is x at position `start[0] + o * step[0]`, and columns
    /// likewise. Beyond its edges x continues with its outermost elements.
    ///
    /// * Input: x `[channels, H, W]`.
    /// * The gradient reads nothing.
    pub struct Interpolate {
        /// Channels.
        pub channels: u64,
        /// The interpolation.
        pub interpolation: Interpolation,
        /// Height and width of x.
        pub input: [u64; 2],
        /// Height and width of y.
        pub output: [u64; 2],
        /// Positions in x of the first row and the first column of y; 0 or half a step for nearest elements.
        pub start: [f64; 2],
        /// Distance in x of neighbouring rows and columns of y.
        pub step: [f64; 2],
    }
}

impl Rule for Interpolate {
    fn output(&self) -> Shape {
        Shape::new(&[self.channels, self.output[0], self.output[1]])
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads::NOTHING)])]
    }

    fn layouts(&self) -> Layouts {
        let [height, width] = self.input;
        Layouts::Maps(vec![Shape::new(&[self.channels, height, width]), self.output()])
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Interpolate", &self.output, inputs[0], self.output())]
    }
}
