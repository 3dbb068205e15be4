use super::{Axes, Transposed};
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `ConvTranspose3d(out_channels, kernel_size, stride = 1, padding = 0, output_padding = 0, dilation = 1, groups = 1, bias = true)`:
/// transposed 3-D convolution. With `in_channels` first, the input is checked.
///
/// * Options: `stride = 1`, `padding = 0`, `output_padding = 0`, `dilation = 1`, each a number or three
///   `(depth, height, width)`; `groups = 1`, `bias = true`.
/// * Options of a weight that is computed from other parameters: [`weight_norm` and `spectral_norm`](crate::layers::linear).
/// * Input `[in_channels, D, H, W]`, output `[out_channels, D', H', W']` with
///   `D' = (D - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1`, `H'` and `W'` likewise.
/// * Parameters: `weight` `[in_channels, out_channels / groups, kernel_depth, kernel_height, kernel_width]` and, with `bias`,
///   `bias` `[out_channels]`, both uniform within
///   `1 / sqrt(out_channels / groups * kernel_depth * kernel_height * kernel_width)`.
/// * Backward keeps the input, unless a `BatchNorm` before this layer recomputes it: see [`Checkpoint::Norms`](crate::Checkpoint::Norms).
///
/// PyTorch: `torch.nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride, padding, output_padding,
/// groups, bias, dilation)`.
#[derive(Clone, Debug)]
pub struct ConvTranspose3d(Transposed<3>);

impl Layer for ConvTranspose3d {
    const NAME: &'static str = "ConvTranspose3d";

    fn read(from: &mut Arguments<'_>) -> ConvTranspose3d {
        ConvTranspose3d(Transposed::read(from))
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, depth, height, width] = x[0].volume()?;
        b.report(x[0].unexpected_channels(self.0.in_channels));
        self.0.on(b, x[0], channels, [depth, height, width], Axes::All)
    }
}
