use super::BatchNorm2d;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::shape::{Shape, product};

/// `BatchNorm3d(eps = 1e-5, momentum = 0.1, affine = true)`: batch normalisation of volumes. All of it may be left out: `BatchNorm3d`. With
/// `num_features` first, the input is checked.
///
/// * Options: `eps = 1e-5`, `momentum = 0.1`, `affine = true`.
/// * Input and output `[C, D, H, W]`. In training each channel is normalised with the mean and the biased variance over
///   batch, depth, height and width; in inference with the running statistics.
/// * Parameters: with `affine`, `weight` `[C]` = 1 and `bias` `[C]` = 0.
/// * Buffers: `running_mean` `[C]` = 0 and `running_var` `[C]` = 1, which move by `momentum` towards the batch's mean
///   and unbiased variance.
/// * Backward keeps the input and two statistics a channel: mean and `1 / sqrt(variance + eps)`.
///
/// PyTorch: `torch.nn.BatchNorm3d(num_features, eps, momentum, affine)`.
#[derive(Clone, Debug)]
pub struct BatchNorm3d(BatchNorm2d);

impl Layer for BatchNorm3d {
    const NAME: &'static str = "BatchNorm3d";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> BatchNorm3d {
        BatchNorm3d(BatchNorm2d::read(from))
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, depth, height, width] = x[0].volume()?;
        b.report(x[0].unexpected_channels(self.0.num_features));
        // Statistics do not depend on the position of an element in its channel, so planes count as further rows.
        let map = [channels, product(&[depth, height]), width];
        let planes = b.view(x[0], Shape::new(&map));
        let y = self.0.on(b, planes, map)?;
        Ok(b.view(y, x[0].shape))
    }
}
