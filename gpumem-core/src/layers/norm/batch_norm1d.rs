use super::BatchNorm2d;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::shape::Shape;
use alloc::format;

/// `BatchNorm1d(eps = 1e-5, momentum = 0.1, affine = true)`: batch normalisation of vectors or signals. All of it may be left out:
/// `BatchNorm1d`. With `num_features` first, the input is checked.
///
/// * Options: `eps = 1e-5`, `momentum = 0.1`, `affine = true`.
/// * Input and output `[C]` or `[C, L]`. In training each channel is normalised with the mean and the biased variance over batch
///   and length, two values at least; in inference with the running statistics.
/// * Parameters: with `affine`, `weight` `[C]` = 1 and `bias` `[C]` = 0.
/// * Buffers: `running_mean` `[C]` = 0 and `running_var` `[C]` = 1, which move by `momentum` towards the batch's mean and
///   unbiased variance.
/// * Backward keeps the input and two statistics a channel: mean and `1 / sqrt(variance + eps)`.
///
/// PyTorch: `torch.nn.BatchNorm1d(num_features, eps, momentum, affine)`.
#[derive(Clone, Debug)]
pub struct BatchNorm1d(BatchNorm2d);

impl Layer for BatchNorm1d {
    const NAME: &'static str = "BatchNorm1d";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> BatchNorm1d {
        BatchNorm1d(BatchNorm2d::read(from))
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers()?;
        let map = match *shape.dims() {
            [channels] => [channels, 1, 1],
            [channels, length] => [channels, 1, length],
            _ => {
                return Err(Mistake::new(format!(
                    "works on a vector [C] or a signal [C, L], but the previous layer produces {shape}; use `BatchNorm2d`"
                )));
            }
        };
        b.report(x[0].unexpected_channels(self.0.num_features));
        let row = b.view(x[0], Shape::new(&map));
        let y = self.0.on(b, row, map)?;
        Ok(b.view(y, shape))
    }
}
