use super::{Axes, Plain};
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `Conv3d(out_channels, kernel_size, stride = 1, padding = 0, dilation = 1, groups = 1, bias = true)`: 3-D convolution. With `in_channels`
/// first, `Conv3d(in_channels, out_channels, kernel_size)`, the input is checked.
///
/// * Options: `stride = 1`, `padding = 0`, `dilation = 1`, each a number or three `(depth, height, width)`; `groups = 1`, `bias = true`.
///   `padding = "same"` gives the output the input's size, if `stride` is 1; `"valid"` is no padding.
/// * Options of a weight that is computed from other parameters: [`weight_norm`, `spectral_norm`, and `standardized` with `gamma` and
///   `eps`](crate::layers::linear).
/// * Input `[in_channels, D, H, W]`, output `[out_channels, D', H', W']` with
///   `D' = floor((D + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1`, `H'` and `W'` likewise.
/// * Parameters: `weight` `[out_channels, in_channels / groups, kernel_depth, kernel_height, kernel_width]` and, with `bias`,
///   `bias` `[out_channels]`, both uniform within `1 / sqrt(fan_in)`,
///   `fan_in = in_channels / groups * kernel_depth * kernel_height * kernel_width`.
/// * Backward keeps the input, unless a `BatchNorm` before this layer recomputes it: see [`Checkpoint::Norms`](crate::Checkpoint::Norms).
///
/// PyTorch: `torch.nn.Conv3d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)`.
#[derive(Clone, Debug)]
pub struct Conv3d(Plain<3>);

impl Layer for Conv3d {
    const NAME: &'static str = "Conv3d";

    fn read(from: &mut Arguments<'_>) -> Conv3d {
        Conv3d(Plain::read(from))
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, depth, height, width] = x[0].volume()?;
        b.report(x[0].unexpected_channels(self.0.in_channels));
        self.0.on(b, x[0], channels, [depth, height, width], Axes::All)
    }
}
