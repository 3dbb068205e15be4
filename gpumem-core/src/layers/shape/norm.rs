use super::permute::permuted;
use super::reduce::{left, named};
use crate::layers::Layer;
use crate::layers::arguments::{Argument, Arguments};
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::VectorNorm;
use crate::shape::{Shape, product};
use alloc::vec::Vec;

/// `Norm(p, dim)`, as `Norm(2, 1)` or `Norm(2, (2, 3))`: the norm of the elements along one axis or several, `(sum of |x|^p)^(1/p)`; with
/// `p = "inf"` the largest `|x|`. No intermediate power overflows or underflows.
///
/// * Options: `keepdim = false`; if true, the axes stay, with length 1. Axes are as PyTorch counts them: the batch is 0, and -1 is the
///   last. `p` is above 0.
/// * Input of any shape; output of the axes that are left, `[1]` if none is. The gradient is 0 if all elements are 0, unlike that of a
///   `Sqrt` after a `Sum`. With `p = "inf"` the largest elements share it.
/// * Parameters: none.
/// * Backward keeps the input and the norms, and with `p = "inf"` the number of elements that share the gradient, 4 bytes a norm.
///
/// PyTorch: `torch.linalg.vector_norm(x, p, dim, keepdim)`, or `x.norm(p, dim, keepdim)`.
#[derive(Clone, Debug)]
pub struct Norm {
    p: f64,
    dim: Vec<i64>,
    keepdim: bool,
}

/// Returns the order `p` of a norm. `None` if the argument is no such number.
fn order(value: &Argument) -> Option<f64> {
    let p = match value {
        Argument::Integer(number) => *number as f64,
        Argument::Float(number) => *number,
        Argument::Text(text) if text == "inf" => return Some(f64::INFINITY),
        _ => return None,
    };
    (p as f32 > 0.0 && (p as f32).is_finite()).then_some(p)
}

impl Layer for Norm {
    const NAME: &'static str = "Norm";

    fn read(from: &mut Arguments<'_>) -> Norm {
        Norm {
            p: from.required("p").take("a number above 0 or \"inf\"", order, [2.0, 1.0]),
            dim: from.required("dim").axes(),
            keepdim: from.option("keepdim").flag(false),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers()?;
        let gone = named(&x[0], &self.dim)?;
        let of = |is_gone: bool| gone.iter().enumerate().filter(move |(_, gone)| **gone == is_gone);
        let [kept, reduced] = [false, true].map(|is_gone| of(is_gone).map(|(axis, _)| axis as u64).collect::<Vec<_>>());
        let (first, last) = (reduced.first().copied().unwrap_or(0), reduced.last().copied().unwrap_or(0));
        let mut rows = x[0];
        let (mut before, mut after) = (first as usize, last as usize + 1);
        // Axes that are not adjacent are brought together: with norms of norms, the largest elements would not share the gradient equally.
        if last - first + 1 != reduced.len() as u64 {
            (before, after) = (kept.len(), shape.rank());
            rows = permuted(b, rows, [kept, reduced].concat())?;
        }
        let dims = rows.shape.dims();
        let [outer, length, inner] = [&dims[..before], &dims[before..after], &dims[after..]].map(product);
        let rows = b.reshaped(rows, Shape::new(&[outer, length, inner]));
        let norms = b.op(VectorNorm { p: self.p, outer, length, inner }, &[rows])?;
        Ok(b.reshaped(norms, left(shape, &gone, self.keepdim)))
    }
}
