use super::CachedAttention;
use crate::number::{Role, inverse_sqrt};
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Op, Reads, Rule, Saved, Sequence, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Scaled dot-product attention: in each head `softmax(scale * q k^T + bias) v`. With `causal` a step sees the steps up to its own
    /// number, else all of them. There is never a T x M tensor in memory that is not an input.
    ///
    /// * Inputs: queries, keys and values side by side, `[.., T, (heads + 2 * kv_heads) * S]`; or, where they are `apart`, queries
    ///   `[.., T, heads * S]`, keys `[.., M, kv_heads * S]` and values `[.., M, kv_heads * V]`. Heads of the queries that follow each other
    ///   share a head of the keys and one of the values. Then what is added to scaled products, if there is anything: matrices `[T, M]`, or
    ///   rows `[M]` that all queries share. A key at which -infinity is added is hidden.
    /// * A query that sees no key has an output of 0, and no gradient comes from it. Its logarithm is +infinity.
    /// * Saves one f32 a row and head, the logarithm of the softmax's denominator.
    /// * The gradient reads all inputs, y, what was saved and, with dropout, the random state. It has room for one f32 a row and head,
    ///   the product of the rows of y and of its gradient, which all keys need, and where cuDNN may compute it for the gradient of the
    ///   queries in f32, to which blocks of keys add.
    pub struct Attention {
        /// Heads of the queries.
        pub heads: u64,
        /// Heads of the keys, and of the values: a divisor of `heads`.
        pub kv_heads: u64,
        /// Steps of keys and values.
        pub keys: u64,
        /// Elements of a head of the queries, and of the keys.
        pub width: u64,
        /// Elements of a head of the values.
        pub values: u64,
        /// What products of queries and keys are multiplied with.
        pub scale: f64,
        /// Probability that an attention weight is set to 0 in training.
        pub dropout: f64,
        /// Whether a step sees only the steps up to its own number.
        pub causal: bool,
        /// How far a step sees: keys whose number differs from its own by less. 0 where it sees all.
        pub window: u64,
        /// Whether queries, keys and values are three inputs.
        pub apart: bool,
        /// Matrices that are added, and how many heads that follow each other share one; after the last matrix comes the first one again.
        /// Nothing is added where there are none.
        pub bias: [u64; 2],
        /// Dimensions of the output: `[.., T, heads * V]`. Sequences of a sample do not see each other.
        pub shape: Shape,
        /// Rows of each matrix that is added: T, or 1 if all queries share it. 0 where nothing is added.
        pub bias_rows: u64,
    }
}

impl Attention {
    /// Attention of queries, keys and values that lie side by side in rows of as many steps, each head scaled by `1 / sqrt(width)`.
    /// `rows` is what the output has before its last axis.
    pub fn joined([heads, kv_heads, width]: [u64; 3], dropout: f64, causal: bool, rows: &[u64]) -> Attention {
        let features = heads.saturating_mul(width);
        let dims: Vec<u64> = rows.iter().copied().chain([features]).collect();
        let keys = rows.last().copied().unwrap_or(0);
        let scale = usual_scale(width);
        let shape = Shape::new(&dims);
        let (values, window, apart, bias, bias_rows) = (width, 0, false, [0; 2], 0);
        Attention {
            heads,
            kv_heads,
            keys,
            width,
            values,
            scale,
            dropout,
            causal,
            window,
            apart,
            bias,
            shape,
            bias_rows,
        }
    }

    /// The same, where a step sees only keys whose number differs from its own by less than `window`, if that is not 0.
    pub fn within(self, window: u64) -> Attention {
        Attention { window, ..self }
    }

    /// How far a step sees, where that hides any; else 0.
    pub fn hides_from(&self) -> u64 {
        if self.window < self.steps().max(self.keys) { self.window } else { 0 }
    }

    /// Whether cuDNN may compute it: it is causal over one sequence whose parts lie side by side, and nothing is hidden, dropped or
    /// added. Every query then sees its own key; what cuDNN makes of one that sees none does not matter.
    pub fn is_for_the_library(&self) -> bool {
        let is_usual = self.scale == usual_scale(self.width) && self.bias[0] == 0 && self.hides_from() == 0;
        self.causal && !self.draws() && !self.apart && is_usual && self.shape.rank() == 2
    }

    /// Steps of the queries.
    pub fn steps(&self) -> u64 {
        self.shape.dims().iter().rev().nth(1).copied().unwrap_or(0)
    }

    /// Sequences of a sample.
    pub fn sequences(&self) -> u64 {
        self.shape.dims().split_last_chunk::<2>().map_or(0, |(sequences, _)| product(sequences))
    }

    /// Elements of a row of the output, over all heads.
    pub fn features(&self) -> u64 {
        self.heads.saturating_mul(self.values)
    }

    /// Elements of a row of each input, without matrices that are added.
    pub fn rows(&self) -> Vec<u64> {
        let of = |heads: u64, width: u64| heads.saturating_mul(width);
        let parts = [of(self.heads, self.width), of(self.kv_heads, self.width), of(self.kv_heads, self.values)];
        if self.apart { parts.to_vec() } else { vec![parts.into_iter().fold(0, u64::saturating_add)] }
    }

    /// The number of the input that is added, if there is one.
    pub fn added(&self) -> Option<u8> {
        (self.bias[0] > 0).then_some(if self.apart { 3 } else { 1 })
    }

    /// Whether each head of keys serves as many heads of queries, and every number fits the others.
    pub fn is_sound(&self) -> bool {
        // The last query sees a key.
        let sees = self.window == 0 || self.steps() < self.keys.saturating_add(self.window);
        let has_heads = self.kv_heads > 0 && self.heads > 0 && self.heads.is_multiple_of(self.kv_heads);
        let has_elements =
            self.width > 0 && self.values > 0 && self.keys > 0 && self.shape.elements().is_some_and(|all| all > 0);
        let is_joined = self.apart || (self.values == self.width && self.keys == self.steps());
        let is_scaled = self.scale.is_finite() && self.scale > 0.0;
        let all = self.sequences().saturating_mul(self.heads);
        let [matrices, sharing] = self.bias;
        let is_shared = matrices == 0 || (sharing > 0 && all.is_multiple_of(matrices.saturating_mul(sharing)));
        let has_rows = matrices == 0 || self.bias_rows == 1 || self.bias_rows == self.steps();
        let is_bias = is_shared && has_rows;
        sees && has_heads && has_elements && is_joined && is_scaled && is_bias && self.shape.last() == self.features()
    }

    /// Elements of all that is added, of a sample or of the whole batch.
    pub fn added_elements(&self) -> u64 {
        product(&[self.bias[0], self.bias_rows, self.keys])
    }

    /// Rows of all heads of a sample's queries.
    fn all_rows(&self) -> Shape {
        Shape::new(&[self.sequences().saturating_mul(self.heads), self.steps()])
    }
}

/// `1 / sqrt(width)`, what PyTorch scales by where nothing else is said.
pub fn usual_scale(width: u64) -> f64 {
    inverse_sqrt(width)
}

/// Elements for what engines of cuDNN note down: 256 bytes on Hopper, and twice that for the gradient.
const TABLES: u64 = 128;

impl Rule for Attention {
    const NAME: &'static str = "Attention";

    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        let inputs: &[u8] = match (self.apart, self.added()) {
            (false, None) => &[0],
            (false, Some(_)) => &[0, 1],
            (true, None) => &[0, 1, 2],
            (true, Some(_)) => &[0, 1, 2, 3],
        };
        let reads = Reads { output: true, saved: true, state: self.draws(), ..Reads::inputs(inputs) };
        let of: Vec<(u8, Reads)> = inputs.iter().map(|&input| (input, reads)).collect();
        vec![Gradient::computed(&of)]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved::each(self.all_rows(), Role::Statistic)]
    }

    /// For what is below: cuDNN 9.28 was asked for many sizes. Engines round the steps up to a multiple of 8.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let of = |shape, batched| Some(Workspace { role: Role::Statistic, shape, batched });
        match work {
            Work::Gradient(_) if !self.is_for_the_library() => of(self.all_rows(), true),
            Work::Gradient(_) => {
                let rows = self.heads.checked_mul(self.steps().checked_next_multiple_of(8)?)?;
                // A row of the queries' gradient, and the product of the rows of y and dy; where heads share keys, as much again in 16 bits
                // for the gradients of keys and values of each head.
                let shared = if self.kv_heads < self.heads { self.width } else { 0 };
                let each = self.width.checked_add(shared)?.checked_add(1)?;
                of(Shape::new(&[rows.checked_mul(each)?.checked_add(TABLES)?]), true)
            }
            Work::Training if self.draws() => None,
            // What drops in training may be the library's without.
            Work::Training | Work::Inference if !(Attention { dropout: 0.0, ..self.clone() }).is_for_the_library() => {
                None
            }
            Work::Training | Work::Inference => of(Shape::new(&[TABLES]), false),
        }
    }

    fn draws(&self) -> bool {
        self.dropout > 0.0
    }

    /// Both products over all queries and keys, as `FlopCounterMode` counts them.
    fn macs(&self) -> u64 {
        let each = self.width.saturating_add(self.values);
        product(&[self.sequences(), self.heads, self.steps(), self.keys, each])
    }

    /// Attention of a sequence over itself, in which nothing later is seen.
    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let is_first = sequence.of_all()? == 0 && self.sequences() == 1;
        if !is_first || self.bias[0] > 0 || self.keys != self.steps() {
            return Err(Sequence::refusal());
        }
        if !self.causal {
            return Err("lets a step see later ones, which `cache` in `INFER` does not know when it comes to that step; use causal \
                        attention"
                .into());
        }
        let Attention { heads, kv_heads, width, values, scale, window, apart, .. } = *self;
        let (cache, shape) = (sequence.cache, sequence.cut(self.shape, 0));
        Ok((CachedAttention { heads, kv_heads, width, values, scale, window, apart, cache, shape }.into(), 0))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let Attention { heads, kv_heads, width, values, .. } = *self;
        if !self.apart {
            return vec![Edge::new("Attention", &[heads, kv_heads, width], inputs[0], self.shape)];
        }
        let arguments = vec![heads, kv_heads, width, values];
        vec![Edge { rule: "AttentionApart", arguments, inputs: inputs[..3].to_vec(), output: self.shape }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_hides_nothing_is_none() {
        let op = Attention::joined([1, 1, 8], 0.0, true, &[5]);
        assert_eq!([4, 5, 6, 0].map(|window| op.clone().within(window).hides_from()), [4, 0, 0, 0]);
        assert!(op.is_for_the_library() && !op.within(4).is_for_the_library());
    }

    /// A damaged program may name any.
    #[test]
    fn numbers_that_do_not_fit_are_not_sound() {
        let joined = Attention::joined([4, 2, 8], 0.0, true, &[3, 5]);
        assert!(joined.is_sound());
        assert_eq!((joined.sequences(), joined.steps(), joined.rows()), (3, 5, vec![64]));
        let apart = Attention { apart: true, keys: 9, values: 6, shape: Shape::new(&[3, 5, 24]), ..joined.clone() };
        assert!(apart.is_sound());
        assert_eq!(apart.rows(), [32, 16, 12]);
        assert_eq!(apart.macs(), 3 * 4 * 5 * 9 * (8 + 6));
        for bias in [[12, 1], [4, 1], [3, 4], [1, 12], [1, 1]] {
            for bias_rows in [1, 5] {
                assert!(Attention { bias, bias_rows, ..apart.clone() }.is_sound(), "{bias:?}, {bias_rows}");
            }
            for bias_rows in [0, 3, 9] {
                assert!(!Attention { bias, bias_rows, ..apart.clone() }.is_sound(), "{bias:?}, {bias_rows}");
            }
        }
        assert_eq!(Attention { bias: [4, 3], bias_rows: 1, ..apart.clone() }.added_elements(), 4 * 9);
        for changed in [
            Attention { window: 3, keys: 2, ..apart.clone() },
            Attention { heads: 0, ..joined.clone() },
            Attention { kv_heads: 3, ..joined.clone() },
            Attention { keys: 6, ..joined.clone() },
            Attention { values: 6, ..joined.clone() },
            Attention { scale: 0.0, ..joined.clone() },
            Attention { scale: f64::NAN, ..joined.clone() },
            Attention { bias: [5, 1], bias_rows: 1, ..joined.clone() },
            Attention { bias: [12, 0], bias_rows: 1, ..joined.clone() },
            Attention { shape: Shape::new(&[3, 5, 24]), ..joined.clone() },
            Attention { shape: Shape::new(&[32]), ..joined.clone() },
            Attention { keys: 0, ..apart.clone() },
            Attention { values: 0, ..apart.clone() },
        ] {
            assert!(!changed.is_sound(), "{changed:?}");
        }
    }
}
