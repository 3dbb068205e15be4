use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops;
use alloc::format;

/// `Slice(start, end, dim = 1)`: the elements from `start` up to, not including, `end` along an axis. Without `end` it is all
/// from `start` on.
///
/// * Options: `dim = 1`, the axis as PyTorch counts them: the batch is 0, and -1 is the last. Negative ends count from the end.
/// * Input of any shape, numbers or tokens; output of the same with `end - start` elements along the axis.
/// * Parameters: none.
/// * Backward keeps nothing. Tokens have no gradient; those of the user's that are left out may be any.
///
/// PyTorch: `x[:, start:end]` for `dim = 1`.
#[derive(Clone, Debug)]
pub struct Slice {
    start: i64,
    end: Option<i64>,
    dim: i64,
}

impl Layer for Slice {
    const NAME: &'static str = "Slice";

    fn read(from: &mut Arguments<'_>) -> Slice {
        Slice {
            start: from.required("start").offset(),
            end: from.trailing("end").offset(),
            dim: from.option("dim").axis_or_1(),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers_or_tokens()?;
        let axis = x[0].axis(self.dim)?;
        let length = shape.dims()[axis];
        let at = |offset: i64| if offset < 0 { offset.saturating_add(length as i64) } else { offset };
        let (start, end) = (at(self.start), self.end.map_or(length as i64, at));
        if start < 0 || end <= start || end as u64 > length {
            return Err(Mistake::of(
                "start",
                format!(
                    "takes elements {start} up to {end} of an axis that has {length}; use 0 <= start < end <= {length}"
                ),
            ));
        }
        part(b, x[0], axis, [start as u64, end as u64])
    }
}

/// Returns the elements from `start` up to, not including, `end` along an axis.
pub(in crate::layers) fn part(
    b: &mut Builder<'_>,
    x: Value,
    axis: usize,
    [start, end]: [u64; 2],
) -> Result<Value, Mistake> {
    if end - start == x.shape.dims()[axis] {
        return Ok(x);
    }
    if x.elements == Elements::Indices {
        return b.op(ops::AsStrided::part(x.shape, axis, [start, end - start]), &[x]);
    }
    b.op(ops::Slice { input: x.shape, start, length: end - start, axis: axis as u64 }, &[x])
}
