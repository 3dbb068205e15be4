use super::check_heads;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Attention;
use alloc::format;

/// Causal scaled dot-product attention on projected queries, keys and values: `CausalAttention(heads)`.
///
/// * Options: `dropout = 0.0`, the probability that an attention weight is set to 0 in training.
/// * Input `[T, 3 * D]`: queries, keys and values side by side, each split into `heads` parts. Output `[T, D]`: in
///   each head `softmax(q k^T / sqrt(D / heads)) v`, where a step sees itself and the steps before it.
/// * Parameters: none.
/// * Backward keeps the input, the output and one f32 a row and head, the logarithm of the softmax's denominator.
///   There is never a T x T tensor in memory.
///
/// PyTorch: `torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)`.
#[derive(Clone, Debug)]
pub struct CausalAttention {
    heads: u64,
    dropout: f64,
}

impl CausalAttention {
    /// Attention of so many heads.
    pub(super) fn of(heads: u64, dropout: f64) -> CausalAttention {
        CausalAttention { heads, dropout }
    }
}

impl Layer for CausalAttention {
    const NAME: &'static str = "CausalAttention";

    fn read(from: &mut Arguments<'_>) -> CausalAttention {
        CausalAttention { heads: from.required("heads").positive(), dropout: from.option("dropout").probability(0.0) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [steps, width] = x[0].sequence()?;
        if !width.is_multiple_of(3) {
            return Err(Mistake::new(format!(
                "takes queries, keys and values side by side, but a width of {width} is not divisible by 3; \
                 put `Linear(3 * D)` before it, or use `CausalSelfAttention`"
            )));
        }
        let CausalAttention { heads, dropout } = *self;
        check_heads(heads, width / 3)?;
        b.op(Attention { heads, kv_heads: heads, steps, width: width / 3 / heads, dropout }, x)
    }
}
