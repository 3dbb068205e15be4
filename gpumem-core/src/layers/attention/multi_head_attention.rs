use super::causal_attention::checked_kv_heads;
use super::{QkNorm, SelfAttention, Turn, check_heads};
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::{Role, inverse_sqrt};
use crate::program::Init;
use crate::program::ops::Product;
use crate::shape::Shape;
use alloc::vec;

/// `MultiHeadAttention(heads, causal = false, dropout = 0.0, bias = true, kv_heads = heads)`: multi-head self-attention, in which a time
/// step sees all steps, or with `causal` itself and those before it. With `embed_dim` first, `MultiHeadAttention(embed_dim, heads)`, the
/// input is checked.
///
/// * Options: `causal = false`; `dropout = 0.0`, the probability that an attention weight is set to 0 in training; `bias = true`;
///   `kv_heads = heads`, a divisor of `heads`: with fewer, neighbouring heads of queries share keys and values.
/// * Option `window`: a time step sees only keys that are less than `window` steps away.
/// * Options of rotary positions: `rotary = 10000.0` turns queries and keys as [`Rotary`](super::Rotary) does with this base, in place and
///   without a saved tensor; `rotary_dims`, the number of elements of a head that turn, all if left out; `interleaved = false`.
/// * Options of normalised heads: `qk_norm = "RmsNorm"` or `"LayerNorm"` normalises each head of queries and of keys, before they are
///   turned; `qk_norm_eps = 1e-6`. Parameters: `q_norm.weight` and `k_norm.weight` of a head's elements = 1, with `"LayerNorm"` also
///   `q_norm.bias` and `k_norm.bias` = 0. Backward also keeps the normalised queries and keys, and their statistics.
/// * Input and output `[T, D]`. With `K = D * kv_heads / heads` one linear map computes queries, keys and values, each head computes
///   `softmax(q k^T / sqrt(D / heads)) v`, and another linear map projects the result.
/// * Parameters, with PyTorch's names: `in_proj_weight` `[D + 2 * K, D]`, uniform within `sqrt(6 / (2 * D + 2 * K))`, and
///   `out_proj.weight` `[D, D]`, uniform within `1 / sqrt(D)`; with `bias`, `in_proj_bias` `[D + 2 * K]` = 0 and `out_proj.bias`
///   `[D]` = 0.
/// * Backward keeps the input, queries, keys and values, the attention's output and one f32 a row and head. There is
///   never a T x T tensor in memory.
///
/// PyTorch: `torch.nn.MultiheadAttention(D, heads, dropout, bias, batch_first=True)(x, x, x)`.
#[derive(Clone, Debug)]
pub struct MultiHeadAttention {
    embed_dim: Option<u64>,
    heads: u64,
    causal: bool,
    dropout: f64,
    bias: bool,
    kv_heads: Option<u64>,
    window: Option<u64>,
    turn: Turn,
    qk_norm: QkNorm,
}

impl Layer for MultiHeadAttention {
    const NAME: &'static str = "MultiHeadAttention";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> MultiHeadAttention {
        MultiHeadAttention {
            embed_dim: from.leading("embed_dim").integer(),
            heads: from.required("heads").positive(),
            causal: from.option("causal").flag(false),
            dropout: from.option("dropout").probability(0.0),
            bias: from.option("bias").flag(true),
            kv_heads: from.option("kv_heads").integer(),
            window: from.option("window").positive_if_any(),
            turn: Turn::read(from),
            qk_norm: QkNorm::read(from),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [_, width] = x[0].sequence()?;
        b.report(x[0].unexpected_features(self.embed_dim));
        let MultiHeadAttention { heads, causal, dropout, window, .. } = *self;
        let kv_heads = checked_kv_heads(b, heads, self.kv_heads);
        check_heads(heads, width)?;
        let shared = width / heads * kv_heads;
        let joined = width.saturating_add(shared.saturating_mul(2));
        // Xavier's initialisation, which PyTorch uses for this weight alone.
        let bound = inverse_sqrt(width.saturating_add(joined)) * 2.449_489_742_783_178;
        let qkv = self.product(b, x[0], ["in_proj_weight", "in_proj_bias"], joined, bound)?;
        let attention = SelfAttention { heads: [heads, kv_heads, width / heads], dropout, causal, window };
        let y = self.qk_norm.attend(b, qkv, &self.turn, &attention)?;
        self.product(b, y, ["out_proj.weight", "out_proj.bias"], width, inverse_sqrt(width))
    }
}

impl MultiHeadAttention {
    /// Adds a linear map of rows to `out_features`, with parameters of these names. The weight is uniform within `bound`.
    fn product(
        &self,
        b: &mut Builder<'_>,
        x: Value,
        [weight, bias]: [&str; 2],
        out_features: u64,
        bound: f64,
    ) -> Result<Value, Mistake> {
        let [rows, in_features] = x.sequence()?;
        let mut inputs = vec![x, b.parameter(weight, &[out_features, in_features], Role::Weight, Init::Uniform(bound))];
        if self.bias {
            inputs.push(b.parameter(bias, &[out_features], Role::Weight, Init::Constant(0.0)));
        }
        let shape = Shape::new(&[rows, out_features]);
        b.op(Product { rows, in_features, out_features, bias: self.bias, transposed: false, shape }, &inputs)
    }
}
