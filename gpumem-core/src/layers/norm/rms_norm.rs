use super::single_feature;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Normalize;
use crate::shape::product;
use alloc::vec;
use alloc::vec::Vec;

/// `RmsNorm(eps = 1.1920929e-7, elementwise_affine = true)`: root-mean-square normalisation of the last axis. All of it may be left out:
/// `RmsNorm`. With `normalized_shape` first, the input is checked; `RmsNorm((4, 6))` normalises the last two axes together, and works on
/// any shape that ends with them.
///
/// * Options: `eps = 1.1920929e-7`, the distance from 1 to the next f32; `elementwise_affine = true`.
/// * Input and output `[N]` or `[T, D]`, with `normalized_shape` of any rank. Each row, of two
///   elements at least, is divided by `sqrt(mean(x^2) + eps)`; its mean stays.
/// * Parameters: with `elementwise_affine`, `weight` = 1 of the shape of a row.
/// * Backward keeps the input and one statistic a row: `1 / sqrt(mean(x^2) + eps)`.
///
/// PyTorch: `torch.nn.RMSNorm(normalized_shape, eps, elementwise_affine)`.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    normalized_shape: Option<Vec<u64>>,
    eps: f64,
    affine: bool,
}

impl Layer for RmsNorm {
    const NAME: &'static str = "RmsNorm";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> RmsNorm {
        RmsNorm {
            normalized_shape: from.leading("normalized_shape").lengths(),
            eps: from.option("eps").number_from(f64::from(f32::EPSILON), 0.0),
            affine: from.option("elementwise_affine").flag(true),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let (rows, axes) = b.last_axes(x[0], self.normalized_shape.as_deref())?;
        b.report(single_feature(product(axes.dims()), "its sign"));
        let mut inputs = vec![b.reshaped(x[0], rows)];
        if self.affine {
            inputs.push(b.scale(axes.dims()));
        }
        let y = b.op(Normalize::of_rows(rows, false, self.eps, [self.affine, false]), &inputs)?;
        Ok(b.reshaped(y, x[0].shape))
    }
}
