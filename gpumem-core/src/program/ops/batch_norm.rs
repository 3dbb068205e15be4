use crate::number::Role;
use crate::program::encoding::record;
use crate::program::function::Function;
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule, Saved, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Channels brought to mean 0 and variance 1, then scaled and shifted. In training the statistics are those of the batch,
    /// in inference, and in training inside of `eval`, the running ones.
    ///
    /// * Inputs: x `[channels, H, W]` and, with `affine`, a factor and a summand for each channel.
    /// * Buffers: running mean and running variance of each channel.
    /// * Saves two statistics a channel: mean and `1 / sqrt(variance + eps)`.
    /// * The gradients read x, what was saved, factors and summands. Where y is computed again, the same is read.
    /// * With `eval` the statistics are constants, and the buffers do not change. The gradient of x is that of y times a factor for each
    ///   channel, and reads no x.
    /// * Where it reads x again it may find it in front of a concatenation, and the gradient may come through a function of y.
    pub struct BatchNorm {
        /// Channels.
        pub channels: u64,
        /// Height and width.
        pub size: [u64; 2],
        /// Added to the variance.
        pub eps: f64,
        /// Share of the batch's statistics in the running ones.
        pub momentum: f64,
        /// Whether there are factors and summands.
        pub affine: bool,
        /// Where x is read for a second time, the channels of the map whose first ones are x: a concatenation that begins with x is kept
        /// in its place. 0 where that is x itself.
        pub within: u64,
        /// The function that y went through, where the gradient comes through that: its slope is computed again from x, so that it keeps
        /// nothing.
        pub activation: Option<Function>,
        /// True if training normalises by the running statistics, too, and leaves them as they are.
        pub eval: bool,
    }
}

impl BatchNorm {
    /// Channels of the map that x is read from.
    pub fn input_channels(&self) -> u64 {
        self.channels.max(self.within)
    }

    /// The part of that map's bytes that are x.
    pub fn share(&self, bytes: u64) -> u64 {
        match self.input_channels() {
            all if all > self.channels => bytes / all * self.channels,
            _ => bytes,
        }
    }

    /// The map that x is read from.
    pub fn input(&self) -> Shape {
        Shape::new(&[self.input_channels(), self.size[0], self.size[1]])
    }
}

/// Parts of the batch that the sums of a channel are split into, so that a card has enough to do where channels are few: more of
/// them where blocks have many channels each, and maps are large.
fn parts(channels: u64, area: u64) -> u64 {
    let few = if channels == 0 { 8 } else { 512u64.div_ceil(channels).min(8) };
    32 * few.min((area / 64).max(1))
}

impl Rule for BatchNorm {
    const NAME: &'static str = "BatchNorm";

    fn output(&self) -> Shape {
        Shape::new(&[self.channels, self.size[0], self.size[1]])
    }

    fn gradients(&self) -> Vec<Gradient> {
        // Summands, too: where a function follows, its slope is computed again.
        let (inputs, of): (&[u8], &[u8]) = if self.affine { (&[0, 1, 2], &[1, 2, 0]) } else { (&[0], &[0]) };
        // With running statistics, which are constants, only the gradient of the factors reads x.
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

    /// The statistics are on their way from one pass over x to the next.
    fn always_saves(&self) -> bool {
        true
    }

    /// The running statistics move once a step.
    fn runs_again_from_saved(&self) -> bool {
        true
    }

    /// Two sums a channel, each over so many parts of the batch.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let shape = Shape::new(&[2, self.channels, parts(self.channels, product(&self.size))]);
        let adds_up = match work {
            Work::Inference => false,
            Work::Training => !self.eval,
            Work::Gradient(_) => self.affine || !self.eval,
        };
        adds_up.then_some(Workspace { role: Role::Statistic, shape, batched: false })
    }

    /// Its own gradient reads x, so this is for inference.
    fn in_place(&self) -> bool {
        true
    }

    fn layouts(&self) -> Layouts {
        Layouts::Maps(vec![self.output(), self.input()])
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Channels", &[self.channels], inputs[0], self.output())]
    }
}
