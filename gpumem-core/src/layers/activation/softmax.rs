use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops;
use crate::shape::product;
use alloc::format;

/// `Softmax` or `Softmax(dim = 1)`: `exp(x) / sum(exp(x))` along one axis.
///
/// * Options: `dim`, the axis as PyTorch counts it, with the batch as axis 0. Left out, it is the channels of a feature map
///   and the last axis of anything else.
/// * Input and output of any one shape.
/// * Parameters: none.
/// * Backward keeps the output.
///
/// PyTorch: `torch.nn.Softmax(dim)`.
#[derive(Clone, Debug)]
pub struct Softmax {
    dim: Option<f64>,
}

impl Layer for Softmax {
    const NAME: &'static str = "Softmax";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> Softmax {
        Softmax { dim: from.trailing("dim").number_if_any() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let op = along(self.dim, false, b, x[0])?;
        b.op(op, x)
    }
}

/// Returns the operation along the axis `dim`, which counts like PyTorch's.
pub(super) fn along(dim: Option<f64>, logarithm: bool, b: &mut Builder<'_>, x: Value) -> Result<ops::Softmax, Mistake> {
    let shape = x.numbers()?;
    let rank = shape.rank();
    let dim = dim.unwrap_or(if rank == 3 { 1.0 } else { rank as f64 });
    let axis = (1..=rank).find(|&axis| dim == axis as f64 || dim == axis as f64 - (rank + 1) as f64);
    let axis = axis.unwrap_or_else(|| {
        let text = format!("needs `dim` to be an axis from 1 to {rank} (0 is the batch), or -1 for the last");
        b.report(Mistake::of("dim", text));
        rank
    });
    let dims = shape.dims();
    let (outer, inner) = (product(&dims[..axis - 1]), product(&dims[axis..]));
    Ok(ops::Softmax { shape, outer, classes: dims[axis - 1], inner, logarithm })
}
