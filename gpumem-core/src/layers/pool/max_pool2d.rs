use super::sliding::Maxima;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `MaxPool2d(kernel_size, stride = kernel_size, padding = 0, dilation = 1, ceil_mode = false)`: the maximum over windows.
///
/// * Options: `stride = kernel_size`, `padding = 0`, `dilation = 1`, each a number or a pair `(height, width)`;
///   `ceil_mode = false`.
/// * Input `[C, H, W]`, output `[C, H', W']` with
///   `H' = floor((H + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1`, and `W'` likewise; with
///   `ceil_mode` the division rounds up.
/// * Parameters: none.
/// * Backward keeps the position of each maximum in its window, 1 byte an output element, or 4 if windows have more than 255 elements.
///
/// PyTorch: `torch.nn.MaxPool2d(kernel_size, stride, padding, dilation, ceil_mode=ceil_mode)`.
#[derive(Clone, Debug)]
pub struct MaxPool2d(Maxima<2>);

impl Layer for MaxPool2d {
    const NAME: &'static str = "MaxPool2d";

    fn read(from: &mut Arguments<'_>) -> MaxPool2d {
        MaxPool2d(Maxima::read(from))
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, height, width] = x[0].feature_map()?;
        self.0.on(b, x[0], channels, [height, width])
    }
}
