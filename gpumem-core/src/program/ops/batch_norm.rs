use crate::number::Role;
use crate::program::encoding::record;
use crate::program::functions::Function;
use crate::program::op::{Edge, Gradient, Layouts, Op, Reads, Rule, Saved, TrainingOnly, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Batch norm: channels brought to mean 0 and variance 1, then scaled and shifted. Training uses the statistics of the batch. Inference
    /// uses the running ones, and so does training inside of `eval`.
    ///
    /// * Inputs: x `[channels, H, W]` and, with `affine`, a factor and a summand for each channel.
    /// * Buffers: running mean and running variance of each channel.
    /// * Saves two statistics a channel: mean and `1 / sqrt(variance + eps)`.
    /// * The gradients read x, the saved statistics, factors and summands. So does a recomputation of y.
    /// * With `eval` the statistics are constants, and the buffers do not change. The gradient of x is that of y times a factor for each
    ///   channel, and does not read x.
    /// * The gradient may find x as the first channels of a concatenation. It may also include the gradient of a function of y.
    pub struct BatchNorm {
        /// Channels.
        pub channels: u64,
        /// Height and width.
        pub size: [u64; 2],
        /// Added to the variance.
        pub eps: f64,
        /// Share of the batch's statistics in the running ones.
        pub momentum: f64,
        /// True if there are factors and summands.
        pub affine: bool,
        /// Channels of the map whose first channels are x: a concatenation that a gradient or recomputation reads instead of x. 0 if x itself is
        /// saved.
        pub within: u64,
        /// The function applied to y, if this is a gradient that includes that function's. Its slope is recomputed from x, so the function saves
        /// nothing. `None` otherwise.
        pub activation: Option<Function>,
        /// True if training, too, normalises by the running statistics and leaves them unchanged.
        pub eval: bool,
    }
}

impl BatchNorm {
    /// Returns the channels of the map from which x is read.
    pub fn input_channels(&self) -> u64 {
        self.channels.max(self.within)
    }

    /// Returns the part of that map's bytes that belongs to x.
    pub fn share(&self, bytes: u64) -> u64 {
        match self.input_channels() {
            all if all > self.channels => bytes / all * self.channels,
            _ => bytes,
        }
    }

    /// Returns the shape of the map from which x is read.
    pub fn input(&self) -> Shape {
        Shape::new(&[self.input_channels(), self.size[0], self.size[1]])
    }
}

/// Returns the number of parts of the batch into which the sums of a channel are split. They keep a card busy even with few channels.
/// The fewer the channels and the larger the maps, the more parts.
fn parts(channels: u64, area: u64) -> u64 {
    let few = if channels == 0 { 8 } else { 512u64.div_ceil(channels).min(8) };
    32 * few.min((area / 64).max(1))
}

impl Rule for BatchNorm {
    fn output(&self) -> Shape {
        Shape::new(&[self.channels, self.size[0], self.size[1]])
    }

    fn gradients(&self) -> Vec<Gradient> {
        // Summands are read, too: the slope of a function after the norm is recomputed from them.
        let (inputs, of): (&[u8], &[u8]) = if self.affine { (&[0, 1, 2], &[1, 2, 0]) } else { (&[0], &[0]) };
        // Running statistics are constants, so only the gradient of the factors reads x.
        let factors: &[u8] = if self.affine { &[1] } else { &[] };
        let reads = |input: u8| {
            let inputs = if self.eval && input != 1 { factors } else { inputs };
            (input, Reads { saved: true, ..Reads::inputs(inputs) })
        };
        let of: Vec<(u8, Reads)> = of.iter().map(|&input| reads(input)).collect();
        vec![Gradient::in_place(&of)]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved::whole(Shape::new(&[2, self.channels]), Role::Statistic)]
    }

    /// True: one pass over x hands the statistics to the next.
    fn always_saves(&self) -> bool {
        true
    }

    /// True: the running statistics must move once a step, not twice.
    fn runs_again_from_saved(&self) -> bool {
        true
    }

    /// Returns memory for two sums a channel, each over several parts of the batch.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let shape = Shape::new(&[2, self.channels, parts(self.channels, product(&self.size))]);
        let adds_up = match work {
            Work::Inference => false,
            Work::Training => !self.eval,
            Work::Gradient(_) => self.affine || !self.eval,
        };
        adds_up.then_some(Workspace { role: Role::Statistic, shape, batched: false })
    }

    /// True: it matters if no gradient reads x, as in inference or with `eval` and frozen factors.
    fn in_place(&self) -> bool {
        true
    }

    fn layouts(&self) -> Layouts {
        Layouts::Maps(vec![self.output(), self.input()])
    }

    fn training_only(&self) -> Option<TrainingOnly> {
        (!self.eval).then_some(TrainingOnly::Statistics)
    }

    fn with_eval(&self, eval: bool) -> Option<Op> {
        Some(BatchNorm { eval, ..self.clone() }.into())
    }

    fn moves_statistics(&self) -> bool {
        !self.eval
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Channels", &[self.channels], inputs[0], self.output())]
    }
}
