use crate::program::encoding::{record, wire_enum};
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// How what lies between the elements of a map is found, along each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The element at or before the place, which is rounded to f32. The first place is 0, or half a step, which is added to the number of
    /// a row before it is multiplied.
    Nearest,
    /// A line through two elements. What lies before the first element is that element.
    Linear,
    /// A cubic through four elements, with PyTorch's a = -0.75.
    Cubic,
}
wire_enum!(Interpolation { Nearest, Linear, Cubic });

record! {
    /// A map of another size, of what lies between the elements of x: row `o` of y is what is at `start[0] + o * step[0]` in x,
    /// columns likewise. Beyond its edges x has its outermost elements.
    ///
    /// * Input: x `[channels, H, W]`.
    /// * The gradient reads nothing.
    pub struct Interpolate {
        /// Channels.
        pub channels: u64,
        /// How what lies between elements is found.
        pub interpolation: Interpolation,
        /// Height and width of x.
        pub input: [u64; 2],
        /// Height and width of y.
        pub output: [u64; 2],
        /// Places in x of the first row and the first column of y; 0 or half a step for nearest elements.
        pub start: [f64; 2],
        /// How far apart neighbouring rows and columns of y are in x.
        pub step: [f64; 2],
    }
}

impl Rule for Interpolate {
    const NAME: &'static str = "Interpolate";

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
