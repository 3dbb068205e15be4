//! Heads of queries and keys that are normalised before they are turned and compared: an option of attention layers.

use super::Turn;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::layers::norm::{LayerNorm, RmsNorm};
use crate::program::ops::{Attention, Slice};
use crate::shape::Shape;

/// Attention of a sequence over itself.
#[derive(Clone, Debug)]
pub(super) struct SelfAttention {
    /// Heads of queries, those of keys and values, and elements of each.
    pub(super) heads: [u64; 3],
    pub(super) dropout: f64,
    pub(super) causal: bool,
    pub(super) window: Option<u64>,
}

/// How heads of queries and keys are normalised, if they are.
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

/// What is added to a mean square or a variance where nothing else is said.
const EPS: f64 = 1e-6;

impl QkNorm {
    pub(super) fn read(from: &mut Arguments<'_>) -> QkNorm {
        let kinds = [None, Some(Kind::Rms), Some(Kind::Layer)];
        let kind = kinds[from.option("qk_norm").choice(&["none", "RmsNorm", "LayerNorm"])];
        QkNorm { kind, eps: from.option("qk_norm_eps").number_from_if_any(0.0) }
    }

    /// One of both normalised: rows of heads of `width` elements each.
    fn applied(&self, b: &mut Builder<'_>, name: &'static str, x: Value, width: u64) -> Result<Value, Mistake> {
        let eps = self.eps.unwrap_or(EPS);
        let rows = x.shape.elements().unwrap_or(0) / width;
        let heads = b.view(x, Shape::new(&[rows, width]));
        let normalised = match self.kind {
            Some(Kind::Rms) => b.layer(name, &RmsNorm::with_eps(eps), &[heads])?,
            _ => b.layer(name, &LayerNorm::with_eps(eps), &[heads])?,
        };
        Ok(b.view(normalised, x.shape))
    }

    /// Attention of queries, keys and values `[T, D + 2 * K]` that lie side by side, after heads were normalised and turned.
    ///
    /// Normalised heads are tensors of their own, so that the parts are taken apart; else they stay as they are.
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
        let q = self.applied(b, "q_norm", q, width)?;
        let k = self.applied(b, "k_norm", k, width)?;
        let q = turn.applied(b, q, heads, width)?;
        let k = turn.applied(b, k, kv_heads, width)?;
        b.op(Attention { apart: true, ..joined }, &[q, k, v])
    }
}
