//! The option `qk_norm` of attention layers: heads of queries and keys are normalised before rotary positions and scores.

use super::Turn;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::Role;
use crate::program::Init;
use crate::program::ops::{Attention, Normalize, Slice};
use crate::shape::Shape;
use alloc::vec;

/// The attention of a sequence over itself.
#[derive(Clone, Debug)]
pub(super) struct SelfAttention {
    /// Heads of queries, those of keys and values, and elements of each.
    pub(super) heads: [u64; 3],
    pub(super) dropout: f64,
    pub(super) causal: bool,
    pub(super) window: Option<u64>,
}

/// The normalisation of heads of queries and keys, if there is one.
#[derive(Clone, Debug)]
pub(super) struct QkNorm {
    kind: Option<Kind>,
    eps: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Rms,
    Layer,
}

/// The number that is added to a mean square or a variance by default.
const EPS: f64 = 1e-6;

impl QkNorm {
    pub(super) fn read(from: &mut Arguments<'_>) -> QkNorm {
        let kinds = [None, Some(Kind::Rms), Some(Kind::Layer)];
        let kind = kinds[from.option("qk_norm").choice(&["none", "RmsNorm", "LayerNorm"])];
        QkNorm { kind, eps: from.option("qk_norm_eps").number_from_if_any(0.0) }
    }

    /// Returns normalised heads of queries or of keys, `[T, heads * width]`.
    fn applied(&self, b: &mut Builder<'_>, [scale, shift]: [&str; 2], x: Value, width: u64) -> Result<Value, Mistake> {
        let [steps, features] = x.sequence()?;
        let heads = b.view(x, Shape::new(&[steps, features / width, width]));
        let is_centred = matches!(self.kind, Some(Kind::Layer));
        let mut inputs = vec![heads, b.parameter(scale, &[width], Role::Norm, Init::Constant(1.0))];
        if is_centred {
            inputs.push(b.parameter(shift, &[width], Role::Norm, Init::Constant(0.0)));
        }
        let op = Normalize::of_rows(heads.shape, is_centred, self.eps.unwrap_or(EPS), [true, is_centred]);
        let normalised = b.op(op, &inputs)?;
        Ok(b.view(normalised, x.shape))
    }

    /// Adds attention over queries, keys and values `[T, D + 2 * K]`, which are side by side, after heads were normalised and turned.
    ///
    /// Normalised heads are separate tensors, so queries, keys and values are split. Otherwise they stay in one tensor.
    pub(super) fn attend(
        &self,
        b: &mut Builder<'_>,
        qkv: Value,
        turn: &Turn,
        attention: &SelfAttention,
    ) -> Result<Value, Mistake> {
        let SelfAttention { heads: [heads, kv_heads, width], dropout, causal, window } = *attention;
        let [steps, _] = qkv.sequence()?;
        let joined = Attention::joined([heads, kv_heads, width], dropout, causal, &[steps]);
        let joined = joined.within(window.unwrap_or(0));
        if self.kind.is_none() {
            b.report(self.eps.map(|_| {
                let text =
                    "has `qk_norm_eps`, but its heads are not normalised; add `qk_norm = \"RmsNorm\"`, or leave it out";
                Mistake::of("qk_norm_eps", text)
            }));
            let turned = turn.applied(b, qkv, heads.saturating_add(kv_heads), width)?;
            return b.op(joined, &[turned]);
        }
        let [queries, keys] = [heads, kv_heads].map(|heads| heads.saturating_mul(width));
        let part = |b: &mut Builder<'_>, start: u64, length: u64| {
            b.op(Slice { input: qkv.shape, start, length, axis: 1 }, &[qkv])
        };
        let q = part(b, 0, queries)?;
        let k = part(b, queries, keys)?;
        let v = part(b, queries.saturating_add(keys), keys)?;
        let q = self.applied(b, ["q_norm.weight", "q_norm.bias"], q, width)?;
        let k = self.applied(b, ["k_norm.weight", "k_norm.bias"], k, width)?;
        let q = turn.applied(b, q, heads, width)?;
        let k = turn.applied(b, k, kv_heads, width)?;
        b.op(Attention { apart: true, ..joined }, &[q, k, v])
    }
}
