use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Normalize;
use alloc::vec;

/// `RmsNorm(eps = 1.1920929e-7, elementwise_affine = true)`: root-mean-square normalisation of the last axis. All of it may be left
/// out: `RmsNorm`. With `normalized_shape` in front what arrives is checked.
///
/// * Options: `eps = 1.1920929e-7`, the distance from 1 to the next f32; `elementwise_affine = true`.
/// * Input and output `[N]` or `[T, D]`. Each row is divided by `sqrt(mean(x^2) + eps)`; its mean stays.
/// * Parameters: with `elementwise_affine`, `weight` `[D]` = 1.
/// * Backward keeps the input and one statistic a row: `1 / sqrt(mean(x^2) + eps)`.
///
/// PyTorch: `torch.nn.RMSNorm(normalized_shape, eps, elementwise_affine)`.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    normalized_shape: Option<u64>,
    eps: f64,
    affine: bool,
}

impl Layer for RmsNorm {
    const NAME: &'static str = "RmsNorm";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> RmsNorm {
        RmsNorm {
            normalized_shape: from.leading("normalized_shape").integer(),
            eps: from.option("eps").number(f64::from(f32::EPSILON)),
            affine: from.option("elementwise_affine").flag(true),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [rows, length] = x[0].rows(self.normalized_shape)?;
        b.report(x[0].unexpected_features(self.normalized_shape));
        let RmsNorm { eps, affine: scale, .. } = *self;
        let shape = x[0].shape;
        let op = Normalize { rows, length, center: false, eps, groups: 1, shared: 1, scale, shift: false, shape };
        let mut inputs = vec![x[0]];
        if scale {
            inputs.push(b.scale(length));
        }
        b.op(op, &inputs)
    }
}
