use super::{Axes, Transposed};
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `ConvTranspose2d(out_channels, kernel_size, stride = 1, padding = 0, output_padding = 0, dilation = 1, groups = 1, bias = true)`:
/// transposed 2-D convolution. With `in_channels` first, the input is checked.
///
/// * Options: `stride = 1`, `padding = 0`, `output_padding = 0`, `dilation = 1`, each a number or a pair
///   `(height, width)`; `groups = 1`, `bias = true`.
/// * Options of a weight that is computed from other parameters: [`weight_norm` and `spectral_norm`](crate::layers::linear).
/// * Input `[in_channels, H, W]`, output `[out_channels, H', W']` with
///   `H' = (H - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1`, and `W'` likewise.
/// * Parameters: `weight` `[in_channels, out_channels / groups, kernel_height, kernel_width]` and, with `bias`,
///   `bias` `[out_channels]`, both uniform within `1 / sqrt(out_channels / groups * kernel_height * kernel_width)`.
/// * Backward keeps the input, unless a `BatchNorm` before this layer recomputes it: see [`Checkpoint::Norms`](crate::Checkpoint::Norms).
///
/// PyTorch: `torch.nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride, padding, output_padding,
/// groups, bias, dilation)`.
#[derive(Clone, Debug)]
pub struct ConvTranspose2d(Transposed<2>);

impl Layer for ConvTranspose2d {
    const NAME: &'static str = "ConvTranspose2d";

    fn read(from: &mut Arguments<'_>) -> ConvTranspose2d {
        ConvTranspose2d(Transposed::read(from))
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, height, width] = x[0].feature_map()?;
        b.report(x[0].unexpected_channels(self.0.in_channels));
        self.0.on(b, x[0], channels, [height, width], Axes::All)
    }
}
