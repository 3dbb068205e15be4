use super::Window;
use super::window::{name_of, with_channels};
use crate::program::encoding::{Reader, Wire, record};
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// The windows over which means are taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Windows<const N: usize = 2> {
    /// A window that slides.
    Sliding {
        /// The window. Padding counts as 0.
        window: Window<N>,
        /// True if zeros of the padding count in the mean.
        count_include_pad: bool,
    },
    /// As many windows as the output has elements. Row `i` is the mean of rows `floor(i * H / H')` up to, not including,
    /// `ceil((i + 1) * H / H')`. Columns are likewise, and planes of a volume.
    Adaptive,
}

impl<const N: usize> Wire for Windows<N> {
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

    fn take(from: &mut Reader<'_>) -> Option<Windows<N>> {
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
    /// * Input: x `[channels, H, W]`, or `[channels, D, H, W]`.
    /// * The gradient reads nothing.
    pub struct AveragePool<const N: usize = 2> {
        /// Channels.
        pub channels: u64,
        /// The windows.
        pub windows: Windows<N>,
        /// Height and width of x; of a volume the depth before them.
        pub input: [u64; N],
        /// Height and width of y; of a volume the depth before them.
        pub output: [u64; N],
    }
}

/// Mean over windows of a volume.
pub type AveragePool3d = AveragePool<3>;

impl<const N: usize> Rule for AveragePool<N> {
    fn output(&self) -> Shape {
        with_channels(self.channels, self.output)
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads::NOTHING)])]
    }

    fn layouts(&self) -> Layouts {
        if N > 2 {
            return Layouts::Dense;
        }
        Layouts::Maps(vec![with_channels(self.channels, self.input), self.output()])
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let (rule, numbers) = match &self.windows {
            Windows::Sliding { window, .. } => {
                (name_of::<N>(["Pool", "Pool3d"]), window.proof(self.input, self.output))
            }
            Windows::Adaptive => (name_of::<N>(["AdaptivePool", "AdaptivePool3d"]), self.output.to_vec()),
        };
        vec![Edge::new(rule, &numbers, inputs[0], self.output())]
    }
}
