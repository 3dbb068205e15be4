use super::check_numbers;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{self, Product};
use crate::shape::{Shape, product};
use alloc::format;

/// `MatMul(x, y)` or `MatMul(x, y, transpose_b)`: the matrix product of two branches.
///
/// * Option: `transpose_b = false`; if true, y is transposed.
/// * Both branches get the layer's input. x `[.., M, K]` and y `[.., K, N]`, or `[.., N, K]` with `transpose_b`, agree in all axes
///   before their last two; the output is `[.., M, N]`.
/// * A y `[K, N]` that all samples share, as a [`Parameter`](crate::layers::Parameter) or a value that is computed from parameters, is the
///   weight of an affine map: x may then be of any shape `[.., K]`, and the product costs no more than a `Linear`. Any other shared branch
///   is repeated for each sample: an x `[M, K]` takes `4 * M * K` bytes a sample in f32, while it is multiplied.
/// * Parameters: none.
/// * Backward keeps both branches' outputs.
///
/// PyTorch: `x @ y`, or `x @ y.transpose(-2, -1)`; of a shared y `F.linear(x, y)` with `transpose_b`.
#[derive(Clone, Debug)]
pub struct MatMul {
    transpose_b: bool,
}

impl Layer for MatMul {
    const NAME: &'static str = "MatMul";
    const INPUTS: (usize, usize) = (2, 2);

    fn read(from: &mut Arguments<'_>) -> MatMul {
        MatMul { transpose_b: from.option("transpose_b").flag(false) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        check_numbers(x)?;
        if let Some(made) = self.by_shared(b, x) {
            return made;
        }
        let transpose_b = self.transpose_b;
        let (left, right) = (x[0].shape, x[1].shape);
        let [a, y] =
            [left, right].map(|shape| shape.dims().split_last_chunk::<2>().map(|(rest, last)| (rest.len(), *last)));
        let (Some((axes, [rows, depth])), Some((others, [first, second]))) = (a, y) else {
            let text =
                format!("multiplies matrices [.., M, K] and [.., K, N], but the branches produce {left} and {right}");
            return Err(Mistake::new(text));
        };
        let (inner, columns) = if transpose_b { (second, first) } else { (first, second) };
        let leading = &left.dims()[..axes];
        if inner != depth || leading != &right.dims()[..others] {
            let form = if transpose_b { "[.., N, K]" } else { "[.., K, N]" };
            let text = format!("multiplies [.., M, K] and {form}, but the branches produce {left} and {right}");
            return Err(Mistake::of_input(1, text));
        }
        let count = product(leading);
        let shape: Shape = left.with_last(columns);
        let x = b.apart(x, x.len())?;
        b.op(ops::MatMul { count, rows, depth, columns, transpose_b, shape }, &x)
    }
}

impl MatMul {
    /// Adds the product with a matrix that all samples share, as an affine map with that weight. `None` for other branches.
    fn by_shared(&self, b: &mut Builder<'_>, x: &[Value]) -> Option<Result<Value, Mistake>> {
        let (&[first, second], false) = (x[1].shape.dims(), x[1].batched) else { return None };
        let (in_features, out_features) = if self.transpose_b { (second, first) } else { (first, second) };
        let (&last, others) = x[0].shape.dims().split_last()?;
        if last != in_features || others.is_empty() {
            return None;
        }
        let (rows, shape) = (product(others), x[0].shape.with_last(out_features));
        // A matrix times itself needs two values, each with a gradient of its own.
        let x = match b.apart(x, 0) {
            Ok(x) => x,
            Err(mistake) => return Some(Err(mistake)),
        };
        Some(b.op(Product { rows, in_features, out_features, bias: false, transposed: !self.transpose_b, shape }, &x))
    }
}
