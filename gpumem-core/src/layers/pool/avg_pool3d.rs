use super::sliding::Means;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `AvgPool3d(kernel_size, stride = kernel_size, padding = 0, ceil_mode = false, count_include_pad = true)`: the mean over
/// windows.
///
/// * Options: `stride = kernel_size`, `padding = 0`, each a number or three `(depth, height, width)`; `ceil_mode = false`,
///   `count_include_pad = true` (zeros of the padding count in the mean).
/// * Input `[C, D, H, W]`, output `[C, D', H', W']` with `D' = floor((D + 2 * padding - kernel_size) / stride) + 1`, `H'` and
///   `W'` likewise; with `ceil_mode` the division rounds up.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.AvgPool3d(kernel_size, stride, padding, ceil_mode, count_include_pad)`.
#[derive(Clone, Debug)]
pub struct AvgPool3d(Means<3>);

impl Layer for AvgPool3d {
    const NAME: &'static str = "AvgPool3d";

    fn read(from: &mut Arguments<'_>) -> AvgPool3d {
        AvgPool3d(Means::read(from))
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, depth, height, width] = x[0].volume()?;
        self.0.on(b, x[0], channels, [depth, height, width])
    }
}
