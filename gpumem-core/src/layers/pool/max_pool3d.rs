use super::sliding::Maxima;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `MaxPool3d(kernel_size, stride = kernel_size, padding = 0, dilation = 1, ceil_mode = false)`: the maximum over windows.
///
/// * Options: `stride = kernel_size`, `padding = 0`, `dilation = 1`, each a number or three `(depth, height, width)`;
///   `ceil_mode = false`.
/// * Input `[C, D, H, W]`, output `[C, D', H', W']` with
///   `D' = floor((D + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1`, `H'` and `W'` likewise; with
///   `ceil_mode` the division rounds up.
/// * Parameters: none.
/// * Backward keeps the position of each maximum in its window, 1 byte an output element, or 4 if windows have more than 255 elements.
///
/// PyTorch: `torch.nn.MaxPool3d(kernel_size, stride, padding, dilation, ceil_mode=ceil_mode)`.
#[derive(Clone, Debug)]
pub struct MaxPool3d(Maxima<3>);

impl Layer for MaxPool3d {
    const NAME: &'static str = "MaxPool3d";

    fn read(from: &mut Arguments<'_>) -> MaxPool3d {
        MaxPool3d(Maxima::read(from))
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, depth, height, width] = x[0].volume()?;
        self.0.on(b, x[0], channels, [depth, height, width])
    }
}
