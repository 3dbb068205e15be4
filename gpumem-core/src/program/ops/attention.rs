use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Reads, Rule, Saved};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Causal scaled dot-product attention: in each head `softmax(q k^T / sqrt(S)) v`, where a step sees itself and the steps
    /// before it. There is never a T x T tensor in memory.
    ///
    /// * Input: queries, keys and values side by side, `[T, 3 * heads * S]`.
    /// * Saves one f32 a row and head, the logarithm of the softmax's denominator.
    /// * The gradient reads x, y, what was saved and, with dropout, the random state.
    pub struct Attention {
        /// Heads.
        pub heads: u64,
        /// Steps of the sequence.
        pub steps: u64,
        /// Elements of a head.
        pub width: u64,
        /// Probability that an attention weight is set to 0 in training.
        pub dropout: f64,
    }
}

impl Attention {
    /// Elements of a row of the output, over all heads.
    pub fn features(&self) -> u64 {
        self.heads.saturating_mul(self.width)
    }
}

impl Rule for Attention {
    const NAME: &'static str = "Attention";

    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.features()])
    }

    fn gradients(&self) -> Vec<Gradient> {
        let reads = Reads { inputs: &[0], output: true, saved: true, state: self.draws() };
        vec![Gradient::computed(&[(0, reads)])]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved { shape: Shape::new(&[self.heads, self.steps]), batched: true, role: Role::Statistic }]
    }

    fn draws(&self) -> bool {
        self.dropout > 0.0
    }

    /// Both products over the full T x T square, as `FlopCounterMode` counts them.
    fn macs(&self) -> u64 {
        product(&[2, self.steps, self.steps, self.features()])
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Attention", &[self.heads, self.width], inputs[0], self.output())]
    }
}
