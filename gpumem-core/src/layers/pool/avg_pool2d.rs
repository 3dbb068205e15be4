use super::sliding::Means;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `AvgPool2d(kernel_size, stride = kernel_size, padding = 0, ceil_mode = false, count_include_pad = true)`: the mean over
/// windows.
///
/// * Options: `stride = kernel_size`, `padding = 0`, each a number or a pair `(height, width)`; `ceil_mode = false`,
///   `count_include_pad = true` (zeros of the padding count in the mean).
/// * Input `[C, H, W]`, output `[C, H', W']` with `H' = floor((H + 2 * padding - kernel_size) / stride) + 1`, and
///   `W'` likewise; with `ceil_mode` the division rounds up.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.AvgPool2d(kernel_size, stride, padding, ceil_mode, count_include_pad)`.
#[derive(Clone, Debug)]
pub struct AvgPool2d(Means<2>);

impl Layer for AvgPool2d {
    const NAME: &'static str = "AvgPool2d";

    fn read(from: &mut Arguments<'_>) -> AvgPool2d {
        AvgPool2d(Means::read(from))
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, height, width] = x[0].feature_map()?;
        self.0.on(b, x[0], channels, [height, width])
    }
}
