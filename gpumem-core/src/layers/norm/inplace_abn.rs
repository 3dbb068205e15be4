use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::Init;
use crate::program::ops::InplaceNorm;
use alloc::format;
use alloc::vec;

/// `InplaceAbn(eps = 1e-5, momentum = 0.1, affine = true, activation_param = 0.01)`: in-place activated batch normalisation: `BatchNorm2d`
/// and `LeakyRelu` that save one map for backward in place of two. All of it may be left out: `InplaceAbn`. With `num_features` first, the
/// input is checked.
///
/// * Options: `eps = 1e-5`, `momentum = 0.1`, `affine = true`; `activation_param = 0.01`, the slope for negative elements: more than 0, and 1
///   for none at all.
/// * Input and output `[C, H, W]`, parameters and buffers as of [`BatchNorm2d`](super::BatchNorm2d).
/// * Backward keeps the output, which a convolution after it keeps anyway, and two statistics a channel. The normalised input is computed
///   from the output: `(y or y / slope, less bias) / weight`.
/// * In place: the output overwrites the input unless another operation needs the input.
/// * It cannot be used inside `eval`: without the batch's statistics the input cannot be computed from the output. Use
///   `BatchNorm2d, LeakyRelu(0.01)` there.
/// * Limits: an element that is computed back is off by about `eps_of_the_format * (|y / slope| + |bias|) / |weight|`, where
///   `eps_of_the_format` is 6e-8 in f32 and 0.002 in Bf16. Gradients equal those of the two layers to 1e-4 in f32 while no weight is below
///   some hundredths of its bias and no slope below 0.001 ([`InplaceNorm::EXACT_FROM`]). A channel whose weight is exactly 0 has 0 as that
///   weight's gradient.
///
/// PyTorch: `torch.nn.Sequential(torch.nn.BatchNorm2d(num_features, eps, momentum, affine), torch.nn.LeakyReLU(activation_param))`.
#[derive(Clone, Debug)]
pub struct InplaceAbn {
    num_features: Option<u64>,
    eps: f64,
    momentum: f64,
    affine: bool,
    slope: f64,
}

impl Layer for InplaceAbn {
    const NAME: &'static str = "InplaceAbn";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> InplaceAbn {
        InplaceAbn {
            num_features: from.leading("num_features").integer(),
            eps: from.option("eps").number_from(1e-5, 0.0),
            momentum: from.option("momentum").finite(0.1),
            affine: from.option("affine").flag(true),
            slope: from.option("activation_param").number_above(0.01, 0.0),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, height, width] = x[0].feature_map()?;
        b.report(x[0].unexpected_channels(self.num_features));
        b.report(b.is_in_eval().then(|| self.cannot_rest()));
        let InplaceAbn { eps, momentum, affine, slope, .. } = *self;
        let mut inputs = vec![x[0]];
        if affine {
            inputs.extend([b.scale(&[channels]), b.shift(&[channels])]);
        }
        let buffers = [
            b.buffer("running_mean", &[channels], Init::Constant(0.0)),
            b.buffer("running_var", &[channels], Init::Constant(1.0)),
        ];
        let op = InplaceNorm { channels, size: [height, width], eps, momentum, affine, slope };
        b.op_with(op, &inputs, &buffers)
    }
}

impl InplaceAbn {
    /// Returns the mistake of a use inside `eval`, with the layers to use in its place.
    fn cannot_rest(&self) -> Mistake {
        let slope = self.slope;
        Mistake::new(format!(
            "finds its input again from the batch's statistics and cannot rest; use `BatchNorm2d, LeakyRelu({slope:?})`"
        ))
    }
}
