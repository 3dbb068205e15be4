use super::Window;
use super::window::{name_of, with_channels};
use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule, Saved};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Maximum over windows.
    ///
    /// * Input: x `[channels, H, W]`, or `[channels, D, H, W]`.
    /// * Saves the position of each maximum in its window, which is all that the gradient reads: see [`MaxPool::place_role`].
    pub struct MaxPool<const N: usize = 2> {
        /// Channels.
        pub channels: u64,
        /// The window that slides over x. Padding counts as minus infinity.
        pub window: Window<N>,
        /// True if there are as many windows as the output has elements, instead of a sliding one. Row `i` is the maximum of rows
        /// `floor(i * H / H')` up to, not including, `ceil((i + 1) * H / H')`. Columns are likewise. The window's kernel is then as large as the
        /// largest of them.
        pub adaptive: bool,
        /// Height and width of x; of a volume the depth before them.
        pub input: [u64; N],
        /// Height and width of y; of a volume the depth before them.
        pub output: [u64; N],
    }
}

/// Maximum over windows of a volume.
pub type MaxPool3d = MaxPool<3>;

impl<const N: usize> MaxPool<N> {
    /// Returns the role of a maximum's position in its window, counted row by row. It is a byte, or an index if windows exceed 255 elements.
    pub fn place_role(&self) -> Role {
        if self.window.area() < 256 { Role::Byte } else { Role::Index }
    }
}

impl<const N: usize> Rule for MaxPool<N> {
    fn output(&self) -> Shape {
        with_channels(self.channels, self.output)
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads::SAVED)])]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved::each(self.output(), self.place_role())]
    }

    fn layouts(&self) -> Layouts {
        if N > 2 {
            return Layouts::Dense;
        }
        Layouts::Maps(vec![with_channels(self.channels, self.input), self.output()])
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let (rule, numbers) = match self.adaptive {
            false => (name_of::<N>(["Pool", "Pool3d"]), self.window.proof(self.input, self.output)),
            true => (name_of::<N>(["AdaptivePool", "AdaptivePool3d"]), self.output.to_vec()),
        };
        vec![Edge::new(rule, &numbers, inputs[0], self.output())]
    }
}
