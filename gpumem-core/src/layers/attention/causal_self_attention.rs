use super::{CausalAttention, check_heads};
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::linear::Linear;
use crate::layers::mistake::Mistake;

/// Multi-head self-attention in which a step sees itself and the steps before it: `CausalSelfAttention(heads)`.
///
/// * Options: `dropout = 0.0`, the probability that an attention weight is set to 0 in training; `bias = true`.
/// * Input and output `[T, D]`. `Linear(3 * D)` makes queries, keys and values, [`CausalAttention`] attends,
///   `Linear(D)` projects.
/// * Parameters: `qkv.weight` `[3 * D, D]`, `qkv.bias` `[3 * D]`, `proj.weight` `[D, D]`, `proj.bias` `[D]`,
///   initialised as those of [`Linear`]: `4 * D * D + 4 * D` in all.
/// * Backward keeps the input, queries, keys and values, the attention's output and one f32 a row and head. There is
///   never a T x T tensor in memory.
///
/// PyTorch: `torch.nn.MultiheadAttention(D, heads, dropout, bias, batch_first=True)(x, x, x, is_causal=True)`.
#[derive(Clone, Debug)]
pub struct CausalSelfAttention {
    heads: u64,
    dropout: f64,
    bias: bool,
}

impl Layer for CausalSelfAttention {
    const NAME: &'static str = "CausalSelfAttention";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> CausalSelfAttention {
        CausalSelfAttention {
            heads: from.required("heads").positive(),
            dropout: from.option("dropout").probability(0.0),
            bias: from.option("bias").flag(true),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let CausalSelfAttention { heads, dropout, bias } = *self;
        let [_, features] = x[0].sequence()?;
        check_heads(heads, features)?;
        let qkv = b.layer("qkv", &Linear::to(features.saturating_mul(3), bias), x)?;
        let attended = b.layer("", &CausalAttention::of(heads, dropout), &[qkv])?;
        b.layer("proj", &Linear::to(features, bias), &[attended])
    }
}
