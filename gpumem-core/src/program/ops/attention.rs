use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Reads, Rule, Saved, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Scaled dot-product attention: in each head `softmax(q k^T / sqrt(S)) v`. With `causal` a step sees itself and the steps
    /// before it, else all of them. There is never a T x T tensor in memory.
    ///
    /// * Input: queries, keys and values side by side, `[T, (heads + 2 * kv_heads) * S]`. Heads of the queries that follow each
    ///   other share a head of the keys and one of the values.
    /// * Saves one f32 a row and head, the logarithm of the softmax's denominator.
    /// * The gradient reads x, y, what was saved and, with dropout, the random state. It has room for one f32 a row and head, the
    ///   product of the rows of y and of its gradient, which all keys need, and where it is causal and nothing is dropped for the
    ///   gradient of the queries in f32, to which blocks of keys add: so cuDNN computes it.
    pub struct Attention {
        /// Heads of the queries.
        pub heads: u64,
        /// Heads of the keys, and of the values: a divisor of `heads`.
        pub kv_heads: u64,
        /// Steps of the sequence.
        pub steps: u64,
        /// Elements of a head.
        pub width: u64,
        /// Probability that an attention weight is set to 0 in training.
        pub dropout: f64,
        /// Whether a step sees only itself and those before it.
        pub causal: bool,
    }
}

impl Attention {
    /// Whether cuDNN may compute it: it is causal, and nothing is dropped.
    pub fn is_for_the_library(&self) -> bool {
        self.causal && !self.draws()
    }

    /// Elements of a row of the output, over all heads.
    pub fn features(&self) -> u64 {
        self.heads.saturating_mul(self.width)
    }

    /// Elements of a row of the input: queries, keys and values.
    pub fn input_features(&self) -> u64 {
        self.heads.saturating_add(self.kv_heads.saturating_mul(2)).saturating_mul(self.width)
    }

    /// Whether each head of keys serves as many heads of queries.
    pub fn is_sound(&self) -> bool {
        self.width > 0 && self.heads > 0 && self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads)
    }
}

/// Elements for what engines of cuDNN note down: 256 bytes on Hopper, and twice that for the gradient.
const TABLES: u64 = 128;

impl Rule for Attention {
    const NAME: &'static str = "Attention";

    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.features()])
    }

    fn gradients(&self) -> Vec<Gradient> {
        let reads = Reads { output: true, saved: true, state: self.draws(), ..Reads::inputs(&[0]) };
        vec![Gradient::computed(&[(0, reads)])]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved { shape: Shape::new(&[self.heads, self.steps]), batched: true, role: Role::Statistic, over: None }]
    }

    /// For what is below: cuDNN 9.28 was asked for many sizes. Engines round the steps up to a multiple of 8.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let of = |shape, batched| Some(Workspace { role: Role::Statistic, shape, batched });
        match work {
            Work::Gradient(_) if !self.is_for_the_library() => of(Shape::new(&[self.heads, self.steps]), true),
            Work::Gradient(_) => {
                let rows = self.heads.checked_mul(self.steps.checked_next_multiple_of(8)?)?;
                // A row of the queries' gradient, and the product of the rows of y and dy; where heads share keys, as much again in 16 bits
                // for the gradients of keys and values of each head.
                let shared = if self.kv_heads < self.heads { self.width } else { 0 };
                let each = self.width.checked_add(shared)?.checked_add(1)?;
                of(Shape::new(&[rows.checked_mul(each)?.checked_add(TABLES)?]), true)
            }
            Work::Training if self.draws() => None,
            Work::Training | Work::Inference if !self.causal => None,
            Work::Training | Work::Inference => of(Shape::new(&[TABLES]), false),
        }
    }

    fn draws(&self) -> bool {
        self.dropout > 0.0
    }

    /// Both products over the full T x T square, as `FlopCounterMode` counts them.
    fn macs(&self) -> u64 {
        product(&[2, self.steps, self.steps, self.features()])
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge::new("Attention", &[self.heads, self.kv_heads, self.width], inputs[0], self.output())]
    }
}
