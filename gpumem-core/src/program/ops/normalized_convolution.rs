use super::{BatchNorm, Convolution, Window};
use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule, Saved, TrainingOnly, Work, Workspace};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A 1x1 [`Convolution`] and the [`BatchNorm`] after it as one linear map of each pixel. The convolution's output is never in memory.
    ///
    /// If inputs have mean `m` and covariance `K` over batch and pixels, a weight `W` gives channels of mean `W m` and variance `w K w^T`, one
    /// for each row `w` of `W`. Both are known before the convolution, so `y = V x + c` with `V = factor * W / std` and
    /// `c = summand - V m`.
    ///
    /// Backward, let `G` be the sum over batch and pixels of `dy x^T`, `s` that of `dy` and `n` their number. Then `dsummand = s`,
    /// `dfactor = (rows of W times rows of G - s * W m) / std`, `dW = factor / std * (G - s m^T - dfactor / std * W K)` and
    /// `dx = V^T dy + M x + k`, with `M = -W^T diag(factor * dfactor / (n * var)) W` and `k = -V^T s / n - M m`. Here `var` is the square of
    /// the divisor `std`. Of all maps, only x and dy are read.
    ///
    /// A channel loses digits if `w K w^T` is small compared with the sum of the `w_i^2 K_ii`. Backends recompute y of such a channel, take its
    /// statistics from that, and save its `1 / sqrt(variance + eps)` with a minus sign. They may also subtract a number from each channel of x
    /// first. `G` and `K` are then those of the shifted x.
    ///
    /// * Inputs: x `[in_channels, H, W]`, a weight `[out_channels, in_channels, 1, 1]` and, with `affine`, a factor and a summand for each
    ///   output channel.
    /// * Buffers: running mean and running variance of each output channel, before factors and summands.
    /// * In inference, mean and variance of each output channel are the running ones.
    /// * Saves mean and `1 / sqrt(variance + eps)` of each output channel, the sum of each input channel, and the sum of `x x^T`.
    /// * The gradients read x, the weight, factors and the saved tensors.
    pub struct NormalizedConvolution {
        /// Channels of x.
        pub in_channels: u64,
        /// Channels of y.
        pub out_channels: u64,
        /// Height and width.
        pub size: [u64; 2],
        /// Added to the variance.
        pub eps: f64,
        /// Share of the batch's statistics in the running ones.
        pub momentum: f64,
        /// True if there are factors and summands.
        pub affine: bool,
    }
}

/// Most parts in which products over all pixels are summed: two for each of 132 multiprocessors.
/// And most elements of all parts together, unless one part is larger.
const PARTS: u64 = 264;
const PARTIAL_SUMS: u64 = 1 << 21;

/// Indices of the [saved](Rule::saved) tensors.
impl NormalizedConvolution {
    /// Mean and `1 / sqrt(variance + eps)` of each output channel, before factor and summand. The second is negative if the statistics come
    /// from a recomputed y. Each backend then defines the mean in its own way.
    pub const STATISTICS: u8 = 0;
    /// The sums over batch and pixels of each input channel.
    pub const TOTALS: u8 = 1;
    /// The sum over batch and pixels of `x x^T`.
    pub const SQUARES: u8 = 2;
}

/// Indices of the [scratch](Rule::scratch) tensors.
impl NormalizedConvolution {
    /// The matrix by which x is multiplied.
    pub const WEIGHT: u8 = 0;
    /// Forward: the summand of each output channel. Backward: that of each channel of the gradient of x.
    pub const SUMMANDS: u8 = 1;
    /// Backward: the sum of dy.
    pub const SUMS: u8 = 2;
    /// Backward: the sum of `dy x^T`.
    pub const PRODUCTS: u8 = 3;
    /// Backward: the matrix by which x is multiplied in its gradient.
    pub const MATRIX: u8 = 4;
}

impl NormalizedConvolution {
    /// Most channels of x, since blocks of a card hold rows of the weight in shared memory.
    pub const MOST_CHANNELS: u64 = 512;

    /// Returns a convolution and its batch norm as one operation, or `None` if that is impossible or does not pay. The convolution must be 1x1
    /// and in one group, without a bias, which the norm would subtract anyway. It pays if there are at least twice as many output channels as
    /// input channels, and at most twice as many input channels as pixels. The products for all samples then cost at most as much as a few samples.
    pub fn new(convolution: &Convolution, norm: &BatchNorm) -> Option<NormalizedConvolution> {
        let Convolution { in_channels, out_channels, input, .. } = *convolution;
        let BatchNorm { channels, size, eps, momentum, affine, within, activation, eval } = norm.clone();
        let pixel = NormalizedConvolution { in_channels, out_channels, size, eps, momentum, affine };
        let is_plain = pixel.convolution(in_channels, out_channels, false) == *convolution && input == size;
        let is_whole = channels == out_channels && within == 0 && activation.is_none() && !eval;
        let pixels = size[0].saturating_mul(size[1]);
        let pays = in_channels <= out_channels / 2 && in_channels <= pixels.saturating_mul(2).min(Self::MOST_CHANNELS);
        (is_plain && is_whole && pays).then_some(pixel)
    }

    /// Returns a 1x1 convolution between that many channels.
    pub fn convolution(&self, in_channels: u64, out_channels: u64, bias: bool) -> Convolution {
        let window = Window { kernel_size: [1; 2], stride: [1; 2], padding: [0; 2], dilation: [1; 2] };
        let (groups, transposed) = (1, false);
        Convolution { in_channels, out_channels, window, groups, bias, transposed, input: self.size, output: self.size }
    }

    /// Returns the dimensions of x.
    pub fn input(&self) -> Shape {
        Shape::new(&[self.in_channels, self.size[0], self.size[1]])
    }

    /// Returns the dimensions of the weight.
    pub fn weight(&self) -> Shape {
        Shape::new(&[self.out_channels, self.in_channels, 1, 1])
    }
}

impl Rule for NormalizedConvolution {
    fn output(&self) -> Shape {
        Shape::new(&[self.out_channels, self.size[0], self.size[1]])
    }

    fn gradients(&self) -> Vec<Gradient> {
        let (inputs, of): (&[u8], &[u8]) = if self.affine { (&[0, 1, 2], &[1, 2, 3, 0]) } else { (&[0, 1], &[1, 0]) };
        let reads = Reads { saved: true, ..Reads::inputs(inputs) };
        let of: Vec<(u8, Reads)> = of.iter().map(|&input| (input, reads)).collect();
        vec![Gradient::computed(&of)]
    }

    fn saved(&self) -> Vec<Saved> {
        let (ins, outs) = (self.in_channels, self.out_channels);
        vec![
            Saved::whole(Shape::new(&[2, outs]), Role::Statistic),
            Saved::whole(Shape::new(&[ins]), Role::Statistic),
            // In the shape that gradients of weights have.
            Saved::whole(Shape::new(&[ins, ins, 1, 1]), Role::Statistic),
        ]
    }

    /// True: one pass hands them to the next.
    fn always_saves(&self) -> bool {
        true
    }

    /// True: the running statistics must move once a step, not twice.
    fn runs_again_from_saved(&self) -> bool {
        true
    }

    fn scratch(&self, work: Work) -> Vec<Saved> {
        let (ins, outs) = (self.in_channels, self.out_channels);
        let backward = matches!(work, Work::Gradient(_));
        let summands = if backward { ins } else { outs };
        let mut all =
            vec![Saved::whole(self.weight(), Role::Weight), Saved::whole(Shape::new(&[summands]), Role::Weight)];
        if backward {
            all.push(Saved::whole(Shape::new(&[outs]), Role::Statistic));
            all.push(Saved::whole(self.weight(), Role::Statistic));
            all.push(Saved::whole(Shape::new(&[ins, ins, 1, 1]), Role::Weight));
        }
        all
    }

    /// Returns memory for partial sums over all pixels: of the products of x with itself or dy, and of x or dy.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let rows = match work {
            Work::Training => self.in_channels,
            Work::Gradient(_) => self.out_channels,
            Work::Inference => return self.convolution(self.in_channels, self.out_channels, true).workspace(work),
        };
        let part = rows.checked_mul(self.in_channels)?.checked_add(rows)?;
        let parts = part.checked_mul(PARTIAL_SUMS.checked_div(part)?.clamp(1, PARTS))?;
        Some(Workspace { role: Role::ConvolutionWorkspace, shape: Shape::new(&[parts]), batched: false })
    }

    fn layouts(&self) -> Layouts {
        Layouts::Maps(vec![self.input(), self.output()])
    }

    /// Counts the convolution, and for each pixel the products in the sums of `x x^T`.
    fn macs(&self) -> u64 {
        let convolution = self.convolution(self.in_channels, self.out_channels, false).macs();
        convolution.saturating_add(self.convolution(self.in_channels, self.in_channels, false).macs())
    }

    fn training_only(&self) -> Option<TrainingOnly> {
        Some(TrainingOnly::Statistics)
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        self.convolution(self.in_channels, self.out_channels, false).edges(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers() -> (Convolution, BatchNorm) {
        let norm = BatchNorm {
            channels: 8,
            size: [5, 3],
            eps: 1e-5,
            momentum: 0.1,
            affine: true,
            within: 0,
            activation: None,
            eval: false,
        };
        let one = NormalizedConvolution {
            in_channels: 4,
            out_channels: 8,
            size: [5, 3],
            eps: 1e-5,
            momentum: 0.1,
            affine: true,
        };
        (one.convolution(4, 8, false), norm)
    }

    #[test]
    fn a_convolution_of_one_pixel_and_its_normalisation_are_one() {
        let (convolution, norm) = layers();
        let one = NormalizedConvolution::new(&convolution, &norm).unwrap();
        assert_eq!((one.in_channels, one.out_channels, one.size), (4, 8, [5, 3]));
        assert_eq!(one.macs(), 15 * (4 * 8 + 4 * 4));
    }

    #[test]
    fn others_are_not() {
        let (convolution, norm) = layers();
        let window = convolution.window;
        let strided = Convolution { window: Window { stride: [2; 2], ..window }, output: [3, 2], ..convolution };
        let wide = Convolution { window: Window { kernel_size: [3; 2], padding: [1; 2], ..window }, ..convolution };
        let grouped = Convolution { groups: 2, ..convolution };
        let biased = Convolution { bias: true, ..convolution };
        let many = Convolution { in_channels: 5, ..convolution };
        for other in [strided, wide, grouped, biased, many] {
            assert_eq!(NormalizedConvolution::new(&other, &norm), None, "{other:?}");
        }
        let resting = BatchNorm { eval: true, ..norm.clone() };
        assert_eq!(NormalizedConvolution::new(&convolution, &resting), None);
        let small = Convolution { input: [1, 1], output: [1, 1], ..convolution };
        assert_eq!(NormalizedConvolution::new(&small, &BatchNorm { size: [1, 1], ..norm }), None);
    }
}
