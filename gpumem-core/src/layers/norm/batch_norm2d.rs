use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::Init;
use crate::program::ops::BatchNorm;
use alloc::vec;

/// `BatchNorm2d(eps = 1e-5, momentum = 0.1, affine = true)`: batch normalisation of feature maps. All of it may be left out: `BatchNorm2d`.
/// With `num_features` first, the input is checked.
///
/// * Options: `eps = 1e-5`, `momentum = 0.1`, `affine = true`.
/// * Input and output `[C, H, W]`. In training each channel is normalised with the mean and the biased variance over
///   batch, height and width, two values at least; in inference with the running statistics.
/// * Inside `eval(..)` training uses the running statistics too, and does not change them. One value a channel is enough then, and backward
///   keeps the input for the gradient of `weight` alone.
/// * Parameters: with `affine`, `weight` `[C]` = 1 and `bias` `[C]` = 0.
/// * Buffers: `running_mean` `[C]` = 0 and `running_var` `[C]` = 1, which move by `momentum` towards the batch's mean
///   and unbiased variance.
/// * Backward keeps the input and two statistics a channel: mean and `1 / sqrt(variance + eps)`. If only gradients of weights read the
///   output again, directly or through an activation, it is recomputed from the input: see [`Checkpoint::Norms`](crate::Checkpoint::Norms).
///
/// PyTorch: `torch.nn.BatchNorm2d(num_features, eps, momentum, affine)`.
#[derive(Clone, Debug)]
pub struct BatchNorm2d {
    pub(super) num_features: Option<u64>,
    eps: f64,
    momentum: f64,
    affine: bool,
}

impl Layer for BatchNorm2d {
    const NAME: &'static str = "BatchNorm2d";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> BatchNorm2d {
        BatchNorm2d {
            num_features: from.leading("num_features").integer(),
            eps: from.option("eps").number_from(1e-5, 0.0),
            momentum: from.option("momentum").finite(0.1),
            affine: from.option("affine").flag(true),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let map = x[0].feature_map()?;
        b.report(x[0].unexpected_channels(self.num_features));
        self.on(b, x[0], map)
    }
}

impl BatchNorm2d {
    /// Adds the normalisation of a map of this size, which may be a row, or one pixel.
    pub(super) fn on(&self, b: &mut Builder<'_>, x: Value, map: [u64; 3]) -> Result<Value, Mistake> {
        let [channels, height, width] = map;
        let BatchNorm2d { eps, momentum, affine, .. } = *self;
        let mut inputs = vec![x];
        if affine {
            inputs.extend([b.scale(&[channels]), b.shift(&[channels])]);
        }
        let buffers = [
            b.buffer("running_mean", &[channels], Init::Constant(0.0)),
            b.buffer("running_var", &[channels], Init::Constant(1.0)),
        ];
        b.op_with(
            BatchNorm {
                channels,
                size: [height, width],
                eps,
                momentum,
                affine,
                within: 0,
                activation: None,
                eval: false,
            },
            &inputs,
            &buffers,
        )
    }
}
