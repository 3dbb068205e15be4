use super::check_numbers;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops;
use crate::shape::{Shape, product};
use alloc::format;

/// `MatMul(x, y)` or `MatMul(x, y, transpose_b)`: the matrix product of two branches.
///
/// * Option: `transpose_b = false`, whether y is taken transposed.
/// * Both branches get the layer's input. x `[.., M, K]` and y `[.., K, N]`, or `[.., N, K]` with `transpose_b`, agree in all axes
///   before their last two; the output is `[.., M, N]`.
/// * Parameters: none.
/// * Backward keeps both branches' outputs.
///
/// PyTorch: `x @ y`, or `x @ y.transpose(-2, -1)`.
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
        if let Some(branch) = x.iter().position(|value| !value.batched) {
            let text = "multiplies values that differ between samples; a matrix that all samples share is `Linear`";
            return Err(Mistake::of_input(branch, text));
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
        b.op(ops::MatMul { count, rows, depth, columns, transpose_b, shape }, x)
    }
}
