mod cached;

pub use cached::CachedConvolution;

use super::Window;
use super::window::{name_of, with_channels};
use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Op, Reads, Rule, Sequence, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Convolution of a map or a volume, or its transpose: every element of x adds its window to y.
    ///
    /// * Inputs: x `[in_channels, H, W]` or `[in_channels, D, H, W]`, a weight and, with `bias`, a bias `[out_channels]`. The weight is
    ///   `[out_channels, in_channels / groups, kernel height, kernel width]`, and that of the transpose
    ///   `[in_channels, out_channels / groups, kernel height, kernel width]`. Weights for volumes have the kernel's depth before its height.
    /// * The gradient of x reads the weight, that of the weight reads x, that of the bias nothing.
    pub struct Convolution<const N: usize = 2> {
        /// Channels of x.
        pub in_channels: u64,
        /// Channels of y.
        pub out_channels: u64,
        /// The window that slides over x, or over y if transposed.
        pub window: Window<N>,
        /// Groups of the channels. Each group of y sees its own group of x only.
        pub groups: u64,
        /// True if a bias is added to each output channel.
        pub bias: bool,
        /// True for the transpose.
        pub transposed: bool,
        /// Height and width of x; of a volume the depth before them.
        pub input: [u64; N],
        /// Height and width of y; of a volume the depth before them.
        pub output: [u64; N],
    }
}

/// Convolution of a volume.
pub type Convolution3d = Convolution<3>;

/// Most elements of all partial sums of a volume's weight gradient, unless one is larger: 4 MiB. Larger weights have enough products to
/// keep a device busy without partial sums.
const PARTIAL_SUMS: u64 = 1 << 20;
/// Most partial sums of an element of the weight's gradient.
const MOST_PARTS: u64 = 64;

impl<const N: usize> Convolution<N> {
    /// Returns channels and size of the images under the windows, and of the map with an element for each window. These are x and y, or y and x
    /// for the transpose.
    pub fn sides(&self) -> [(u64, [u64; N]); 2] {
        let (x, y) = ((self.in_channels, self.input), (self.out_channels, self.output));
        if self.transposed { [y, x] } else { [x, y] }
    }

    /// Returns the dimensions of the weight.
    pub fn weight(&self) -> Shape {
        let [images, positions] = self.sides();
        let mut dims = vec![positions.0, images.0.checked_div(self.groups).unwrap_or(0)];
        dims.extend(self.window.kernel_size);
        Shape::new(&dims)
    }

    /// Returns the numbers of its type-level assertion. The output padding of a transpose is the part of y that its windows leave over.
    fn proof(&self) -> Vec<u64> {
        let mut numbers = vec![self.out_channels];
        if !self.transposed {
            numbers.extend(self.window.proof(self.input, self.output));
            return numbers;
        }
        let Window { kernel_size, stride, padding, dilation } = self.window;
        for axis in 0..N {
            let spread = (self.input[axis] - 1) * stride[axis] + dilation[axis] * (kernel_size[axis] - 1) + 1;
            let extra = self.output[axis] + 2 * padding[axis] - spread;
            numbers.extend([kernel_size[axis], stride[axis], padding[axis], dilation[axis], extra]);
        }
        numbers
    }
}

/// Elements of f32 in the tables of an engine: 256 bytes.
const TABLES: u64 = 64;

impl<const N: usize> Rule for Convolution<N> {
    fn output(&self) -> Shape {
        with_channels(self.out_channels, self.output)
    }

    /// Returns the weight first: tensors that only its gradient reads are then free before the gradient of x exists.
    fn gradients(&self) -> Vec<Gradient> {
        let mut parameters = vec![(1, Reads::inputs(&[0]))];
        if self.bias {
            parameters.push((2, Reads::NOTHING));
        }
        vec![Gradient::computed(&parameters), Gradient::computed(&[(0, Reads::inputs(&[1]))])]
    }

    /// Returns memory that cuDNN's engines can use. Forward and for the gradient of x it is a transformed copy of the weight, with up to twice
    /// its elements, or the tables of engines for channels last: 131 bytes, whatever the sizes. For the gradient of the weight it is partial
    /// sums, and x and the gradient of y in another layout. Volumes have partial sums only, since their products have no transformed copies.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let (elements, batched) = match work {
            Work::Gradient(0) if N > 2 => {
                let weight = self.weight().elements()?;
                let parts = PARTIAL_SUMS.checked_div(weight)?.min(MOST_PARTS);
                (weight.checked_mul(parts).filter(|_| parts > 1)?, false)
            }
            _ if N > 2 => return None,
            Work::Gradient(0) => {
                let images = with_channels(self.in_channels, self.input).elements()?;
                (images.checked_add(self.output().elements()?)?, true)
            }
            // A kernel of one pixel has nothing to transform.
            _ if self.window.area() == 1 => (TABLES, false),
            _ => (self.weight().elements()?.checked_mul(2)?.max(TABLES), false),
        };
        Some(Workspace { role: Role::ConvolutionWorkspace, shape: Shape::new(&[elements]), batched })
    }

    fn macs(&self) -> u64 {
        let [images, positions] = self.sides();
        product(&[positions.0, product(&positions.1), images.0 / self.groups.max(1), self.window.area()])
    }

    /// Decodes a signal, which is a map of one row. A time step sees only earlier ones if padding is as wide as the window reaches back. The
    /// output then has as many more time steps at its end, which see none of the first ones.
    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let Window { kernel_size, stride, padding, dilation } = self.window;
        let is_signal = N == 2 && kernel_size[0] == 1 && self.input[0] == 1 && self.output[0] == 1;
        if sequence.of_first()? != N || !is_signal || self.transposed || stride[N - 1] != 1 {
            return Err(Sequence::refusal());
        }
        let Convolution { in_channels, out_channels, groups, bias, .. } = *self;
        let (kernel_size, dilation, steps) = (kernel_size[N - 1], dilation[N - 1], sequence.chunk);
        let op = CachedConvolution { in_channels, out_channels, kernel_size, dilation, groups, bias, steps };
        if padding[N - 1] != op.reach() || self.output[N - 1] < sequence.whole {
            return Err(format!(
                "lets a step see later ones, which `cache` in `INFER` does not know when it comes to that step: write `padding = {0}`, and \
                 after it `Slice(0, -{0}, dim = -1)`",
                op.reach()
            ));
        }
        if op.reach() > 0 {
            return Ok((op.into(), N));
        }
        let (window, transposed) =
            (Window { kernel_size: [1; 2], stride: [1; 2], padding: [0; 2], dilation: [1; 2] }, false);
        let (input, output) = ([1, steps], [1, steps]);
        Ok((Convolution { in_channels, out_channels, window, groups, bias, transposed, input, output }.into(), N))
    }

    fn layouts(&self) -> Layouts {
        if N > 2 {
            return Layouts::Dense;
        }
        Layouts::Maps(vec![with_channels(self.in_channels, self.input), self.output(), self.weight()])
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let rule = if self.transposed {
            name_of::<N>(["TransposedConvolution", "TransposedConvolution3d"])
        } else {
            name_of::<N>(["Convolution", "Convolution3d"])
        };
        vec![Edge::new(rule, &self.proof(), inputs[0], self.output())]
    }
}
