use super::{Turn, check_heads};
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Attention;
use alloc::format;

/// `CausalAttention(heads, dropout = 0.0, kv_heads = heads)`: causal scaled dot-product attention on projected queries, keys and
/// values.
///
/// * Options: `dropout = 0.0`, the probability that an attention weight is set to 0 in training; `kv_heads = heads`, a divisor of `heads`:
///   the heads of keys and values, which neighbouring heads of queries share.
/// * Option `window`: a time step sees only keys that are less than `window` steps away.
/// * Options of rotary positions: `rotary = 10000.0` turns queries and keys as [`Rotary`](super::Rotary) does with this base, in place and
///   without a saved tensor; `rotary_dims`, the number of elements of a head that turn, all if left out; `interleaved = false`.
/// * Input `[T, D + 2 * D * kv_heads / heads]`: queries, keys and values side by side, queries split into `heads` parts. Output
///   `[T, D]`: in each head `softmax(q k^T / sqrt(D / heads)) v`, where a step sees itself and the steps before it.
/// * Parameters: none.
/// * Backward keeps the input, the output and one f32 a row and head, the logarithm of the softmax's denominator.
///   There is never a T x T tensor in memory.
///
/// PyTorch: `torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout, enable_gqa=True)`.
#[derive(Clone, Debug)]
pub struct CausalAttention {
    heads: u64,
    kv_heads: Option<u64>,
    dropout: f64,
    window: Option<u64>,
    turn: Turn,
}

/// Returns the heads of keys and values, by default those of queries. Reports a mistake unless they divide those of queries.
pub(super) fn checked_kv_heads(b: &mut Builder<'_>, heads: u64, kv_heads: Option<u64>) -> u64 {
    match kv_heads {
        None => heads,
        Some(shared) if shared > 0 && heads.is_multiple_of(shared) => shared,
        Some(shared) => {
            let text =
                format!("has kv_heads = {shared}, which does not divide its {heads} heads; use a divisor of {heads}");
            b.report(Mistake::of("kv_heads", text));
            heads
        }
    }
}

impl Layer for CausalAttention {
    const NAME: &'static str = "CausalAttention";

    fn read(from: &mut Arguments<'_>) -> CausalAttention {
        CausalAttention {
            heads: from.required("heads").positive(),
            kv_heads: from.option("kv_heads").integer(),
            dropout: from.option("dropout").probability(0.0),
            window: from.option("window").positive_if_any(),
            turn: Turn::read(from),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [steps, width] = x[0].sequence()?;
        let CausalAttention { heads, kv_heads, dropout, window, ref turn } = *self;
        let kv_heads = checked_kv_heads(b, heads, kv_heads);
        // Heads of queries for each head of keys. A row consists of so many equal parts of queries, one of keys and one of values.
        let group = heads / kv_heads;
        let parts = group.saturating_add(2);
        if !width.is_multiple_of(parts) {
            let needed = if group == 1 { "3 * D".into() } else { format!("D + 2 * D / {group}") };
            return Err(Mistake::new(format!(
                "takes queries, keys and values side by side, but a width of {width} is not divisible by {parts}; \
                 put `Linear({needed})` before it, or use `CausalSelfAttention`"
            )));
        }
        let features = width / parts * group;
        check_heads(heads, features)?;
        let turned = turn.applied(b, x[0], heads.saturating_add(kv_heads), features / heads)?;
        let op = Attention::joined([heads, kv_heads, features / heads], dropout, true, &[steps]);
        b.op(op.within(window.unwrap_or(0)), &[turned])
    }
}
