use super::check_heads;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops;
use alloc::format;

/// `Rotary(heads, base = 10000.0, dims = D / heads, interleaved = false, size, before = 0)`: rotary position embedding of projected queries
/// or keys. Attention layers have it as the option `rotary = 10000.0`.
///
/// * Options: `base = 10000.0`, at least 1; `dims`, the even number of elements of each head that turn, all if left out;
///   `interleaved = false`: pairs are elements `i` and `i + dims / 2`, or neighbours if true; `size`, height and width of the map whose
///   positions, row after row, are the steps; `before = 0`, the number of steps before the map, which do not turn, such as a class token.
/// * Input and output `[T, D]` of `heads` heads side by side. In step `t`, pair `i` of each head turns by
///   `t * base^(-2 * i / dims)` radians: `(a, b)` becomes `(a cos - b sin, b cos + a sin)`. With `size`, the first half of the pairs turns by
///   the position's row and the second half by its column: `dims` is a multiple of 4, and pair `i` of either half turns by
///   `base^(-4 * i / dims)` radians a row or column.
/// * Parameters: none, and no tables in memory. Angles are exact: sines and cosines are right to the last digits at any step, even if a
///   table of `f32` angles is not.
/// * Backward keeps nothing. The output takes the place of the input.
///
/// PyTorch: `apply_rotary_pos_emb` of `transformers.models.llama.modeling_llama`; interleaved, that of
/// `transformers.models.gptj.modeling_gptj`; interleaved and with `size`, `RotaryEmbeddingCat` of `timm.layers` with
/// `in_pixels=False`.
#[derive(Clone, Debug)]
pub struct Rotary {
    heads: u64,
    base: f64,
    dims: Option<u64>,
    interleaved: bool,
    size: Option<[u64; 2]>,
    before: Option<u64>,
}

/// The base if it is left out.
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
            size: from.option("size").positive_pair_if_any(),
            before: from.option("before").integer(),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [_, features] = x[0].sequence()?;
        check_heads(self.heads, features)?;
        let Rotary { base, dims, interleaved, size, before, .. } = *self;
        let turn = Turn { base: Some(base), dims, interleaved, size, before, named: ["dims", "size", "before"] };
        turn.applied(b, x[0], self.heads, features / self.heads)
    }
}

/// The options of rotary positions of an attention layer.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    base: Option<f64>,
    dims: Option<u64>,
    interleaved: bool,
    size: Option<[u64; 2]>,
    before: Option<u64>,
    /// The names of the options `dims`, `size` and `before` in this layer.
    named: [&'static str; 3],
}

impl Turn {
    /// Reads the options of an attention layer.
    pub(super) fn read(from: &mut Arguments<'_>) -> Turn {
        Turn {
            base: from.option("rotary").number_from_if_any(1.0),
            dims: from.option("rotary_dims").integer(),
            interleaved: from.option("interleaved").flag(false),
            size: from.option("rotary_size").positive_pair_if_any(),
            before: from.option("rotary_before").integer(),
            named: ["rotary_dims", "rotary_size", "rotary_before"],
        }
    }

    /// Returns `x` with the first `heads` heads of each row turned; `x` itself if no base is given.
    pub(super) fn applied(&self, b: &mut Builder<'_>, x: Value, heads: u64, width: u64) -> Result<Value, Mistake> {
        let Turn { base, dims, interleaved, named, .. } = *self;
        let Some(base) = base else {
            let given = [dims.is_some(), self.size.is_some(), self.before.is_some(), interleaved];
            let options = named.into_iter().chain(["interleaved"]);
            let needless = options.zip(given).find_map(|(option, is_given)| is_given.then_some(option));
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
            b.report(Mistake::of(named[0], text));
            return Ok(x);
        }
        let (grid, before) = match self.place(x, dims) {
            Ok(place) => place,
            Err(mistake) => {
                b.report(mistake);
                return Ok(x);
            }
        };
        b.op(ops::Rotary { shape: x.shape, heads, width, dims, base, interleaved, grid, before, follows: false }, &[x])
    }

    /// Returns the grid whose positions are the steps, if there is one, and the number of steps before it.
    fn place(&self, x: Value, dims: u64) -> Result<(Option<[u64; 2]>, u64), Mistake> {
        let [_, size, before] = self.named;
        let Some([height, width]) = self.size else {
            let is_needless = self.before.is_some_and(|before| before > 0);
            let text =
                format!("has `{before}`, which says where a map begins; add `{size} = (14, 14)`, or leave it out");
            return if is_needless { Err(Mistake::of(before, text)) } else { Ok((None, 0)) };
        };
        let (first, steps) = (self.before.unwrap_or(0), x.shape.dims()[0]);
        if height.saturating_mul(width).saturating_add(first) != steps {
            let text = format!(
                "has a map of {height} x {width} positions after {first} others, but its input has {steps} steps; use `{size}` and \
                 `{before}` that make {steps}"
            );
            return Err(Mistake::of(size, text));
        }
        if !dims.is_multiple_of(4) {
            let text =
                format!("turns {dims} elements by rows and columns; use a multiple of 4 for `{}`", self.named[0]);
            return Err(Mistake::of(size, text));
        }
        Ok((Some([height, width]), first))
    }
}
