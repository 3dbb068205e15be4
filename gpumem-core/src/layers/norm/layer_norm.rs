use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Normalize;
use alloc::vec;

/// `LayerNorm(eps = 1e-5, elementwise_affine = true, bias = true)`: layer normalisation of the last axis. All of it may be left
/// out: `LayerNorm`. With `normalized_shape` in front what arrives is checked.
///
/// * Options: `eps = 1e-5`, `elementwise_affine = true`, `bias = true`.
/// * Input and output `[N]` or `[T, D]`. Each row is normalised with its own mean and biased variance.
/// * Parameters: with `elementwise_affine`, `weight` `[D]` = 1 and, with `bias`, `bias` `[D]` = 0.
/// * Backward keeps the input and two statistics a row: mean and `1 / sqrt(variance + eps)`.
///
/// PyTorch: `torch.nn.LayerNorm(normalized_shape, eps, elementwise_affine, bias)`.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    normalized_shape: Option<u64>,
    eps: f64,
    affine: bool,
    bias: bool,
}

impl Layer for LayerNorm {
    const NAME: &'static str = "LayerNorm";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> LayerNorm {
        LayerNorm {
            normalized_shape: from.leading("normalized_shape").integer(),
            eps: from.option("eps").number(1e-5),
            affine: from.option("elementwise_affine").flag(true),
            bias: from.option("bias").flag(true),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [rows, length] = x[0].rows(self.normalized_shape)?;
        b.report(x[0].unexpected_features(self.normalized_shape));
        let (scale, shift) = (self.affine, self.affine && self.bias);
        let mut inputs = vec![x[0]];
        if scale {
            inputs.push(b.scale(length));
        }
        if shift {
            inputs.push(b.shift(length));
        }
        let op = Normalize {
            rows,
            length,
            center: true,
            eps: self.eps,
            groups: 1,
            shared: 1,
            scale,
            shift,
            shape: x[0].shape,
        };
        b.op(op, &inputs)
    }
}
