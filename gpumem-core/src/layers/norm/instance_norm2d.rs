use super::{GroupNorm, single};
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `InstanceNorm2d(eps = 1e-5, affine = false)`: normalisation of each channel of each sample. All of it may be left out: `InstanceNorm2d`.
/// With `num_features` first, the input is checked.
///
/// * Options: `eps = 1e-5`, `affine = false`.
/// * Input and output `[C, H, W]`. Each channel of a sample is normalised with its own mean and biased variance over height and width,
///   two elements at least, in training as in inference.
/// * Parameters: with `affine`, `weight` `[C]` = 1 and `bias` `[C]` = 0.
/// * Backward keeps the input and two statistics a channel of each sample: mean and `1 / sqrt(variance + eps)`.
///
/// PyTorch: `torch.nn.InstanceNorm2d(num_features, eps, affine=affine)`.
#[derive(Clone, Debug)]
pub struct InstanceNorm2d {
    num_features: Option<u64>,
    eps: f64,
    affine: bool,
}

impl Layer for InstanceNorm2d {
    const NAME: &'static str = "InstanceNorm2d";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> InstanceNorm2d {
        InstanceNorm2d {
            num_features: from.leading("num_features").integer(),
            eps: from.option("eps").number_from(1e-5, 0.0),
            affine: from.option("affine").flag(false),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, sizes @ ..] = x[0].feature_map()?;
        b.report(single(&sizes));
        b.report(x[0].unexpected_channels(self.num_features));
        GroupNorm::of_each(channels, self.eps, self.affine).on(b, x[0])
    }
}
