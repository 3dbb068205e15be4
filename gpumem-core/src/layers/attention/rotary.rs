use super::check_heads;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops;
use alloc::format;

/// `Rotary(heads, base = 10000.0, dims = D / heads, interleaved = false)`: rotary position embedding of projected queries or keys,
/// which the attentions have as the option `rotary = 10000.0`.
///
/// * Options: `base = 10000.0`, at least 1; `dims`, how many elements of each head turn, an even number: all of them where nothing is
///   said; `interleaved = false`: pairs are elements `i` and `i + dims / 2`, with it neighbours.
/// * Input and output `[T, D]` of `heads` heads side by side. In step `t`, pair `i` of each head turns by
///   `t * base^(-2 * i / dims)` radians: `(a, b)` becomes `(a cos - b sin, b cos + a sin)`.
/// * Parameters: none, and no tables in memory. Angles are exact: sines and cosines are right to the last digits at any step, also
///   where a table of `f32` angles is not.
/// * Backward keeps nothing. The output takes the place of the input.
///
/// PyTorch: `apply_rotary_pos_emb` of `transformers.models.llama.modeling_llama`; interleaved, that of
/// `transformers.models.gptj.modeling_gptj`.
#[derive(Clone, Debug)]
pub struct Rotary {
    heads: u64,
    base: f64,
    dims: Option<u64>,
    interleaved: bool,
}

/// The base where nothing is said.
const BASE: f64 = 10_000.0;

impl Layer for Rotary {
    const NAME: &'static str = "Rotary";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> Rotary {
        Rotary {
            heads: from.required("heads").positive(),
            base: from.option("base").number_from(BASE, 1.0),
            dims: from.option("dims").integer(),
            interleaved: from.option("interleaved").flag(false),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [_, features] = x[0].sequence()?;
        check_heads(self.heads, features)?;
        let turn = Turn { base: Some(self.base), dims: self.dims, interleaved: self.interleaved, named: "dims" };
        turn.applied(b, x[0], self.heads, features / self.heads)
    }
}

/// The options by which an attention turns its queries and keys.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    base: Option<f64>,
    dims: Option<u64>,
    interleaved: bool,
    /// What the option `dims` is called.
    named: &'static str,
}

impl Turn {
    /// Reads them.
    pub(super) fn read(from: &mut Arguments<'_>) -> Turn {
        Turn {
            base: from.option("rotary").number_from_if_any(1.0),
            dims: from.option("rotary_dims").integer(),
            interleaved: from.option("interleaved").flag(false),
            named: "rotary_dims",
        }
    }

    /// The first `heads` heads of each row turned; the value as it is where no base is given.
    pub(super) fn applied(&self, b: &mut Builder<'_>, x: Value, heads: u64, width: u64) -> Result<Value, Mistake> {
        let Turn { base, dims, interleaved, named } = *self;
        let Some(base) = base else {
            let needless = if dims.is_some() { Some(named) } else { interleaved.then_some("interleaved") };
            b.report(needless.map(|option| {
                let text = format!(
                    "has `{option}`, which only a rotary embedding has; add `rotary = {BASE:.1}`, or leave it out"
                );
                Mistake::of(option, text)
            }));
            return Ok(x);
        };
        let dims = dims.unwrap_or(width);
        if dims == 0 || !dims.is_multiple_of(2) || dims > width {
            let text =
                format!("turns {dims} elements of heads that have {width}; use an even number from 2 to {width}");
            b.report(Mistake::of(named, text));
            return Ok(x);
        }
        b.op(ops::Rotary { shape: x.shape, heads, width, dims, base, interleaved, follows: false }, &[x])
    }
}
