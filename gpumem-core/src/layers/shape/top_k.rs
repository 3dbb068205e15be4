use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops;
use alloc::format;

/// `TopK(k)` or `TopK(k, dim)`: the `k` largest elements along an axis, the largest first. `TopK(k, dim, indices)` gives their places as tokens
/// instead: `Take`, `Gather` and `Embedding` look something up by them.
///
/// * Options: `dim = -1`, the axis as PyTorch counts them: the batch is 0, and -1 is the last. `largest = true`; `false` finds the smallest, the
///   smallest first. `indices = false`.
/// * Input of any shape; output of the same with `k` elements along the axis. With `k` as long as the axis it is sorted.
/// * Of equal elements the first comes first, and -0 equals 0. A NaN is larger than any number.
/// * Parameters: none.
/// * Backward keeps the places, 4 bytes for each element of the output. The gradient of an element goes to its place; places have none, so
///   that nothing before `TopK(k, indices)` is trained through it.
///
/// PyTorch: `x.topk(k, dim, largest).values`, or `.indices`.
#[derive(Clone, Debug)]
pub struct TopK {
    k: u64,
    dim: i64,
    largest: bool,
    indices: bool,
}

impl Layer for TopK {
    const NAME: &'static str = "TopK";

    fn read(from: &mut Arguments<'_>) -> TopK {
        TopK {
            k: from.required("k").positive(),
            dim: from.trailing("dim").axis().unwrap_or(-1),
            largest: from.option("largest").flag(true),
            indices: from.option("indices").flag(false),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        x[0].numbers()?;
        let axis = x[0].axis(self.dim)?;
        let length = x[0].shape.dims()[axis];
        if self.k > length {
            let text = format!("finds {} elements along an axis of {}, which has {length}", self.k, x[0].shape);
            return Err(Mistake::of("k", format!("{text}; use `k` up to {length}")));
        }
        let places = places(b, x[0], axis, self.k, !self.largest)?;
        if self.indices {
            return Ok(places);
        }
        b.op(ops::TakeAlong { input: x[0].shape, axis: axis as u64, count: self.k }, &[x[0], places])
    }
}

/// Returns places of the best elements along an axis.
///
/// # Errors
/// An axis whose places are no indices of 32 bits.
pub(in crate::layers) fn places(
    b: &mut Builder<'_>,
    x: Value,
    axis: usize,
    k: u64,
    smallest: bool,
) -> Result<Value, Mistake> {
    let op = ops::TopK { input: x.shape, axis: axis as u64, k, smallest };
    if !op.is_sound() {
        let text = format!("finds places along an axis of {}; use one of fewer than 2^32 - 1 elements", x.shape);
        return Err(Mistake::new(text));
    }
    b.op(op, &[x])
}
