use super::single_feature;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Normalize;
use crate::shape::product;
use alloc::vec;
use alloc::vec::Vec;

/// `LayerNorm(eps = 1e-5, elementwise_affine = true, bias = true)`: layer normalisation of the last axis. All of it may be left out:
/// `LayerNorm`. With `normalized_shape` first, the input is checked; `LayerNorm((4, 6))` normalises the last two axes together, for any
/// shape that ends with them.
///
/// * Options: `eps = 1e-5`, `elementwise_affine = true`, `bias = true`.
/// * Input and output `[N]` or `[T, D]`, with `normalized_shape` of any rank. Each row, of two elements at least, is normalised with its
///   own mean and biased variance.
/// * Parameters: with `elementwise_affine`, `weight` = 1 and, with `bias`, `bias` = 0, both of the shape of a row.
/// * Backward keeps the input and two statistics a row: mean and `1 / sqrt(variance + eps)`.
///
/// PyTorch: `torch.nn.LayerNorm(normalized_shape, eps, elementwise_affine, bias)`.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    normalized_shape: Option<Vec<u64>>,
    eps: f64,
    affine: bool,
    bias: bool,
}

impl Layer for LayerNorm {
    const NAME: &'static str = "LayerNorm";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> LayerNorm {
        LayerNorm {
            normalized_shape: from.leading("normalized_shape").lengths(),
            eps: from.option("eps").number_from(1e-5, 0.0),
            affine: from.option("elementwise_affine").flag(true),
            bias: from.option("bias").flag(true),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let (rows, axes) = b.last_axes(x[0], self.normalized_shape.as_deref())?;
        let left = if self.affine && self.bias { "the bias" } else { "0" };
        b.report(single_feature(product(axes.dims()), left));
        let (scale, shift) = (self.affine, self.affine && self.bias);
        let mut inputs = vec![b.reshaped(x[0], rows)];
        if scale {
            inputs.push(b.scale(axes.dims()));
        }
        if shift {
            inputs.push(b.shift(axes.dims()));
        }
        let op = Normalize::of_rows(rows, true, self.eps, [scale, shift]);
        let y = b.op(op, &inputs)?;
        Ok(b.reshaped(y, x[0].shape))
    }
}
