mod cached;

pub use cached::CachedAttention;

use crate::number::{Role, inverse_sqrt};
use crate::program::Slot;
use crate::program::encoding::{record, wire_enum};
use crate::program::indices::Indices;
use crate::program::op::{Edge, Gradient, Inputs, Op, Reads, Rule, Saved, Sequence, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The keys that queries may see, as an extra input restricts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Seen {
    /// All keys.
    All,
    /// The first `n` keys of each sequence. The input is one number for each sample, from 0 to the number of keys.
    Lengths,
    /// Keys of the query's own segment. The input is a number for each time step, which never falls along the sequence. Equal numbers are a
    /// segment.
    Segments,
}
wire_enum!(Seen { All, Lengths, Segments });

record! {
    /// Scaled dot-product attention: in each head `softmax(scale * q k^T + bias) v`. With `causal` a time step sees those up to its own,
    /// else all of them. No tensor but an input ever has the size `[T, M]`.
    ///
    /// * Inputs: queries, keys and values in one row, `[.., T, (heads + 2 * kv_heads) * S]`. If they are `apart`, queries
    ///   `[.., T, heads * S]`, keys `[.., M, kv_heads * S]` and values `[.., M, kv_heads * V]`. Adjacent heads of the queries share a head of
    ///   the keys and one of the values. Next comes the bias of scaled products, if there is one: matrices `[T, M]`, or rows `[M]` that all
    ///   queries share. A bias of -infinity hides a key. Last come the indices of `seen`: a number for each sample, or one for each of the T
    ///   time steps. Keys that no query sees are not read.
    /// * A query that sees no key has an output of 0 and gives no gradient. Its saved logarithm is +infinity.
    /// * Saves one f32 a row and head, the logarithm of the softmax's denominator.
    /// * The gradient reads all inputs, y, the saved tensor and, with dropout, the random state. Its scratch has one f32 a row and head: the
    ///   dot product of a row of y and of its gradient, which all keys need. If cuDNN may compute it, scratch also has the gradient of the
    ///   queries in f32, to which blocks of keys add.
    pub struct Attention {
        /// Heads of the queries.
        pub heads: u64,
        /// Heads of the keys, and of the values: a divisor of `heads`.
        pub kv_heads: u64,
        /// Time steps of keys and values.
        pub keys: u64,
        /// Elements of a head of the queries, and of the keys.
        pub width: u64,
        /// Elements of a head of the values.
        pub values: u64,
        /// Factor of the products of queries and keys.
        pub scale: f64,
        /// Probability that an attention weight is set to 0 in training.
        pub dropout: f64,
        /// True if a time step sees only those up to its own.
        pub causal: bool,
        /// Window of keys: a time step sees those whose index differs from its own by less. 0 if it sees all.
        pub window: u64,
        /// True if queries, keys and values are three inputs.
        pub apart: bool,
        /// Number of bias matrices, and number of adjacent heads that share one. After the last matrix the first one is used again.
        /// `[0, _]` if there is no bias.
        pub bias: [u64; 2],
        /// Dimensions of the output: `[.., T, heads * V]`. Sequences of a sample do not see each other.
        pub shape: Shape,
        /// Rows of each bias matrix: T, or 1 if all queries share it. 0 without a bias.
        pub bias_rows: u64,
        /// The restriction of the keys that a query may see.
        pub seen: Seen,
    }
}

impl Attention {
    /// Returns attention of queries, keys and values that share a row, scaled by `1 / sqrt(width)`. `rows` are the output's dimensions before
    /// its last axis.
    pub fn joined([heads, kv_heads, width]: [u64; 3], dropout: f64, causal: bool, rows: &[u64]) -> Attention {
        let features = heads.saturating_mul(width);
        let dims: Vec<u64> = rows.iter().copied().chain([features]).collect();
        let keys = rows.last().copied().unwrap_or(0);
        let scale = usual_scale(width);
        let shape = Shape::new(&dims);
        let (values, window, apart, bias, bias_rows, seen) = (width, 0, false, [0; 2], 0, Seen::All);
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
            seen,
        }
    }

    /// Limits how far a time step sees to keys whose index differs by less than `window`, unless that is 0.
    pub fn within(self, window: u64) -> Attention {
        Attention { window, ..self }
    }

    /// Returns the window if it hides any key, else 0.
    pub fn hides_from(&self) -> u64 {
        if self.window < self.steps().max(self.keys) { self.window } else { 0 }
    }

    /// True if cuDNN may compute it. It must be causal over one sequence whose queries, keys and values share a row, without window, dropout
    /// or bias. Every query then sees its own key, so it does not matter what cuDNN returns for a query that sees none.
    pub fn is_for_the_library(&self) -> bool {
        let is_usual = self.scale == usual_scale(self.width) && self.bias[0] == 0 && self.hides_from() == 0;
        let is_usual = is_usual && self.seen == Seen::All;
        self.causal && !self.draws() && !self.apart && is_usual && self.shape.rank() == 2
    }

    /// Returns the time steps of the queries.
    pub fn steps(&self) -> u64 {
        self.shape.dims().iter().rev().nth(1).copied().unwrap_or(0)
    }

    /// Returns the number of sequences in a sample.
    pub fn sequences(&self) -> u64 {
        self.shape.dims().split_last_chunk::<2>().map_or(0, |(sequences, _)| product(sequences))
    }

    /// Returns the elements of a row of the output, over all heads.
    pub fn features(&self) -> u64 {
        self.heads.saturating_mul(self.values)
    }

    /// Returns the elements of a row of each of queries, keys and values, or of their one input.
    pub fn rows(&self) -> Vec<u64> {
        let of = |heads: u64, width: u64| heads.saturating_mul(width);
        let parts = [of(self.heads, self.width), of(self.kv_heads, self.width), of(self.kv_heads, self.values)];
        if self.apart { parts.to_vec() } else { vec![parts.into_iter().fold(0, u64::saturating_add)] }
    }

    /// Returns the index of the input with the bias, or `None` if there is none.
    pub fn added(&self) -> Option<u8> {
        (self.bias[0] > 0).then_some(if self.apart { 3 } else { 1 })
    }

    /// Returns the index of the input that says which keys are seen, or `None` if all are.
    pub fn seen_by(&self) -> Option<u8> {
        let parts = if self.apart { 3 } else { 1 };
        (self.seen != Seen::All).then_some(parts + u8::from(self.bias[0] > 0))
    }

    /// Returns how many numbers of a sample say which keys are seen.
    pub fn seen_elements(&self) -> u64 {
        match self.seen {
            Seen::All => 0,
            Seen::Lengths => 1,
            Seen::Segments => self.keys,
        }
    }

    /// True if each head of keys serves as many heads of queries, and all numbers fit each other.
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
        let is_counted = self.keys < u64::from(u32::MAX);
        let is_seen = match self.seen {
            Seen::All => true,
            Seen::Lengths => is_counted,
            Seen::Segments => is_counted && self.keys == self.steps(),
        };
        let is_sized = has_heads && has_elements && self.shape.last() == self.features();
        sees && is_sized && is_joined && is_scaled && is_bias && is_seen
    }

    /// Returns the elements of the bias, for a sample or for the whole batch.
    pub fn added_elements(&self) -> u64 {
        product(&[self.bias[0], self.bias_rows, self.keys])
    }

    /// Returns the shape of the rows of all heads in a sample's queries.
    fn all_rows(&self) -> Shape {
        Shape::new(&[self.sequences().saturating_mul(self.heads), self.steps()])
    }
}

/// Returns `1 / sqrt(width)`, PyTorch's default scale.
pub fn usual_scale(width: u64) -> f64 {
    inverse_sqrt(width)
}

/// Elements for the tables of cuDNN's engines: 256 bytes on Hopper, and twice that for the gradient.
const TABLES: u64 = 128;

impl Rule for Attention {
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
        let all = self.seen_by().map_or(Inputs::of(inputs), |seen| Inputs::of(inputs).with(seen));
        let reads = Reads { inputs: all, output: true, saved: true, state: self.draws() };
        let of: Vec<(u8, Reads)> = inputs.iter().map(|&input| (input, reads)).collect();
        vec![Gradient::computed(&of)]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved::each(self.all_rows(), Role::Statistic)]
    }

    /// Returns scratch for the engines of cuDNN 9.28, measured at many sizes. They round time steps up to a multiple of 8.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let of = |shape, batched| Some(Workspace { role: Role::Statistic, shape, batched });
        match work {
            Work::Gradient(_) if !self.is_for_the_library() => of(self.all_rows(), true),
            Work::Gradient(_) => {
                let rows = self.heads.checked_mul(self.steps().checked_next_multiple_of(8)?)?;
                // A row of the queries' gradient, and the dot product of the rows of y and dy. If heads share keys, the gradients of keys and
                // values of each head need as much again in 16 bits.
                let shared = if self.kv_heads < self.heads { self.width } else { 0 };
                let each = self.width.checked_add(shared)?.checked_add(1)?;
                of(Shape::new(&[rows.checked_mul(each)?.checked_add(TABLES)?]), true)
            }
            Work::Training if self.draws() => None,
            // The library may compute attention in an evaluation even if training drops.
            Work::Training | Work::Inference if !(Attention { dropout: 0.0, ..self.clone() }).is_for_the_library() => {
                None
            }
            Work::Training | Work::Inference => of(Shape::new(&[TABLES]), false),
        }
    }

    fn indices(&self) -> Vec<Indices> {
        let rule = |input| match self.seen {
            Seen::Segments => Indices::ordered("segment", Slot::Input(input), self.keys),
            _ => Indices::below(self.keys.saturating_add(1), "length", Slot::Input(input), 1),
        };
        self.seen_by().map(rule).into_iter().collect()
    }

    fn draws(&self) -> bool {
        self.dropout > 0.0
    }

    /// Counts both products over all queries and keys, as `FlopCounterMode` does.
    fn macs(&self) -> u64 {
        let each = self.width.saturating_add(self.values);
        product(&[self.sequences(), self.heads, self.steps(), self.keys, each])
    }

    /// Decodes attention of a sequence over itself, if no time step sees a later one.
    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        if self.seen != Seen::All {
            return Err(Sequence::refusal());
        }
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

    fn with_eval(&self, eval: bool) -> Option<Op> {
        eval.then(|| Attention { dropout: 0.0, ..self.clone() }.into())
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

    #[test]
    fn what_says_which_keys_are_seen_is_the_last_input() {
        let joined = Attention::joined([2, 2, 4], 0.0, true, &[5]);
        let apart = Attention { apart: true, seen: Seen::Lengths, ..joined.clone() };
        let added = Attention { bias: [1, 2], bias_rows: 1, ..apart.clone() };
        let segments = Attention { seen: Seen::Segments, ..joined.clone() };
        assert_eq!([&joined, &segments, &apart, &added].map(Attention::seen_by), [None, Some(1), Some(3), Some(4)]);
        assert_eq!([&joined, &segments, &apart].map(Attention::seen_elements), [0, 5, 1]);
        assert!(segments.is_sound() && !segments.is_for_the_library() && joined.is_for_the_library());
        let Gradient::Computed { of, .. } = &added.gradients()[0] else { panic!() };
        assert_eq!(of.iter().map(|(input, _)| *input).collect::<Vec<u8>>(), [0, 1, 2, 3]);
        assert!(of.iter().all(|(_, reads)| reads.inputs.contains(4)));
    }

    /// A damaged program may have any numbers.
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
            Attention { seen: Seen::Segments, ..apart.clone() },
            Attention { seen: Seen::Lengths, keys: u64::from(u32::MAX), ..apart.clone() },
            Attention { values: 0, ..apart.clone() },
        ] {
            assert!(!changed.is_sound(), "{changed:?}");
        }
    }
}
