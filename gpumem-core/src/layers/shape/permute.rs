use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::op::Rule;
use crate::program::ops;
use alloc::format;
use alloc::vec::Vec;

/// `Permute(dims)`, as `Permute((0, 2, 3, 1))` or `Permute(0, 2, 3, 1)`: the axes in another order.
///
/// * `dims` says for each axis of the output which axis of the input it is, as PyTorch counts them: the batch is axis 0 and stays
///   in front, -1 is the last.
/// * Input of any shape, numbers or tokens. Where only axes of length 1 change places it is the same memory under another shape: no operation.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `x.permute(dims)`.
#[derive(Clone, Debug)]
pub struct Permute {
    dims: Vec<i64>,
}

impl Layer for Permute {
    const NAME: &'static str = "Permute";

    fn read(from: &mut Arguments<'_>) -> Permute {
        Permute { dims: from.several("dims").axes() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers_or_tokens()?;
        let rank = shape.rank() as i64;
        let dims = self.dims.iter().map(|&dim| if dim < 0 { dim + rank + 1 } else { dim });
        let dims: Vec<i64> = dims.collect();
        let is_order = dims.len() as i64 == rank + 1 && (0..=rank).all(|axis| dims.contains(&axis));
        if !is_order || dims[0] != 0 {
            let all: Vec<_> = (0..=rank).map(|axis| format!("{axis}")).collect();
            return Err(Mistake::of(
                "dims",
                format!(
                    "needs each axis of {shape} once, after the batch, which is axis 0: as `({})`, in the order that you want",
                    all.join(", ")
                ),
            ));
        }
        let order = dims[1..].iter().map(|&dim| dim as u64 - 1).collect();
        permuted(b, x[0], order)
    }
}

/// Returns a value with the axes of a sample in another order.
pub(super) fn permuted(b: &mut Builder<'_>, x: Value, order: Vec<u64>) -> Result<Value, Mistake> {
    let op = ops::Permute { input: x.shape, order };
    if op.moved(1).len() == 1 {
        return Ok(b.reshaped(x, op.output()));
    }
    match x.elements {
        Elements::Indices => b.op(ops::AsStrided::permuted(x.shape, &op.order), &[x]),
        Elements::Numbers | Elements::Bytes => b.op(op, &[x]),
    }
}
