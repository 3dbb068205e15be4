use super::causal_attention::checked_kv_heads;
use super::{QkNorm, SelfAttention, Turn, check_heads};
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::linear::Linear;
use crate::layers::mistake::Mistake;

/// `CausalSelfAttention(heads, dropout = 0.0, bias = true, kv_heads = heads)`: multi-head self-attention in which a step sees
/// itself and the steps before it.
///
/// * Options: `dropout = 0.0`, the probability that an attention weight is set to 0 in training; `bias = true`;
///   `kv_heads = heads`, a divisor of `heads`: with fewer, neighbouring heads of queries share keys and values.
/// * Option `window`: a time step sees only keys that are less than `window` steps away.
/// * Options of rotary positions: `rotary = 10000.0` turns queries and keys as [`Rotary`](super::Rotary) does with this base, in place and
///   without a saved tensor; `rotary_dims`, the number of elements of a head that turn, all if left out; `interleaved = false`.
/// * Options of normalised heads: `qk_norm = "RmsNorm"` or `"LayerNorm"` normalises each head of queries and of keys, before they are
///   turned; `qk_norm_eps = 1e-6`. Parameters: `q_norm.weight` and `k_norm.weight` of a head's elements = 1, with `"LayerNorm"` also
///   `q_norm.bias` and `k_norm.bias` = 0. Backward also keeps the normalised queries and keys, and their statistics.
/// * Input and output `[T, D]`. `Linear(D + 2 * K)` with `K = D * kv_heads / heads` makes queries, keys and values,
///   [`CausalAttention`](super::CausalAttention) attends, `Linear(D)` projects.
/// * Parameters: `qkv.weight` `[D + 2 * K, D]`, `qkv.bias` `[D + 2 * K]`, `proj.weight` `[D, D]`, `proj.bias` `[D]`, initialised as those
///   of [`Linear`]: `4 * D * D + 4 * D` elements in total if `K = D`.
/// * Backward keeps the input, queries, keys and values, the attention's output and one f32 a row and head. There is
///   never a T x T tensor in memory.
///
/// PyTorch: `proj(scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True))` with the heads of `qkv(x)` as `q, k, v`, between
/// two `torch.nn.Linear`; with fewer heads of keys, `enable_gqa=True`.
#[derive(Clone, Debug)]
pub struct CausalSelfAttention {
    heads: u64,
    kv_heads: Option<u64>,
    dropout: f64,
    bias: bool,
    window: Option<u64>,
    turn: Turn,
    qk_norm: QkNorm,
}

impl Layer for CausalSelfAttention {
    const NAME: &'static str = "CausalSelfAttention";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> CausalSelfAttention {
        CausalSelfAttention {
            heads: from.required("heads").positive(),
            kv_heads: from.option("kv_heads").integer(),
            dropout: from.option("dropout").probability(0.0),
            bias: from.option("bias").flag(true),
            window: from.option("window").positive_if_any(),
            turn: Turn::read(from),
            qk_norm: QkNorm::read(from),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let CausalSelfAttention { heads, kv_heads, dropout, bias, window, ref turn, ref qk_norm } = *self;
        let [_, features] = x[0].sequence()?;
        check_heads(heads, features)?;
        let kv_heads = checked_kv_heads(b, heads, kv_heads);
        let width = features.saturating_add((features / heads * kv_heads).saturating_mul(2));
        let qkv = b.layer("qkv", &Linear::to(width, bias), x)?;
        let attention = SelfAttention { heads: [heads, kv_heads, features / heads], dropout, causal: true, window };
        let attended = qk_norm.attend(b, qkv, turn, &attention)?;
        b.layer("proj", &Linear::to(features, bias), &[attended])
    }
}
