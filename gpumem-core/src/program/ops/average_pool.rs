use super::Window;
use crate::program::encoding::{Reader, Wire, record};
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// Which elements each mean is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Windows {
    /// Those of a window that slides.
    Sliding {
        /// The window. Padding counts as 0.
        window: Window,
        /// Whether zeros of the padding count in the mean.
        count_include_pad: bool,
    },
    /// As many rectangles as the output has elements: row `i` is the mean of rows `floor(i * H / H')` up to, not including,
    /// `ceil((i + 1) * H / H')`; columns likewise.
    Adaptive,
}

impl Wire for Windows {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Windows::Adaptive => 0u64.put(out),
            Windows::Sliding { window, count_include_pad } => {
                1u64.put(out);
                window.put(out);
                count_include_pad.put(out);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Windows> {
        match u64::take(from)? {
            0 => Some(Windows::Adaptive),
            1 => Some(Windows::Sliding { window: Wire::take(from)?, count_include_pad: Wire::take(from)? }),
            _ => None,
        }
    }
}

record! {
    /// Mean over windows.
    ///
    /// * Input: x `[channels, H, W]`.
    /// * The gradient reads nothing.
    pub struct AveragePool {
        /// Channels.
        pub channels: u64,
        /// Which elements each mean is of.
        pub windows: Windows,
        /// Height and width of x.
        pub input: [u64; 2],
        /// Height and width of y.
        pub output: [u64; 2],
    }
}

impl Rule for AveragePool {
    const NAME: &'static str = "AveragePool";

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
        let (rule, numbers) = match &self.windows {
            Windows::Sliding { window, .. } => ("Pool", window.proof(self.input, self.output)),
            Windows::Adaptive => ("AdaptivePool", self.output.to_vec()),
        };
        vec![Edge::new(rule, &numbers, inputs[0], self.output())]
    }
}
