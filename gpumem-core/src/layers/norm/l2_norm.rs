use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops;
use crate::shape::product;
use alloc::format;

/// `L2Norm` or `L2Norm(dim = 1, eps = 1e-12)`: divides elements along an axis by their Euclidean norm, `x / max(|x|, eps)`.
///
/// * Options: `dim = 1`, the axis as PyTorch counts them: the batch is 0, and -1 is the last; `eps = 1e-12`, above 0.
/// * Input and output of any one shape.
/// * Parameters: none.
/// * Backward keeps the output, and the norms in 32 bits. The output may overwrite the input.
///
/// PyTorch: `torch.nn.functional.normalize(x, p=2.0, dim=dim, eps=eps)`.
#[derive(Clone, Debug)]
pub struct L2Norm {
    dim: i64,
    eps: f64,
}

impl Layer for L2Norm {
    const NAME: &'static str = "L2Norm";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> L2Norm {
        L2Norm { dim: from.trailing("dim").axis_or_1(), eps: from.option("eps").number_above(1e-12, 0.0) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers()?;
        let axis = x[0].axis(self.dim)?;
        let mut eps = self.eps;
        if (eps as f32) == 0.0 || !(eps as f32).is_finite() {
            b.report(Mistake::of("eps", format!("has eps = {eps:e}, which f32 has not; use 1e-12")));
            eps = 1e-12;
        }
        let dims = shape.dims();
        let (outer, inner) = (product(&dims[..axis]), product(&dims[axis + 1..]));
        b.op(ops::L2Norm { shape, outer, length: dims[axis], inner, eps }, x)
    }
}
