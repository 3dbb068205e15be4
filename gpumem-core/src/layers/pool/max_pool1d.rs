use super::sliding::Maxima;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Window;

/// `MaxPool1d(kernel_size, stride = kernel_size, padding = 0, dilation = 1, ceil_mode = false)`: the maximum over windows.
///
/// * Options: `stride = kernel_size`, `padding = 0`, `dilation = 1`, `ceil_mode = false`.
/// * Input `[C, L]`, output `[C, L']` with `L' = floor((L + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1`; with
///   `ceil_mode` the division rounds up.
/// * Parameters: none.
/// * Backward keeps the position of each maximum in its window, 1 byte an output element, or 4 if windows have more than 255 elements.
///
/// PyTorch: `torch.nn.MaxPool1d(kernel_size, stride, padding, dilation, ceil_mode=ceil_mode)`.
#[derive(Clone, Debug)]
pub struct MaxPool1d(Maxima<2>);

impl Layer for MaxPool1d {
    const NAME: &'static str = "MaxPool1d";

    fn read(from: &mut Arguments<'_>) -> MaxPool1d {
        let kernel_size = from.required("kernel_size").positive();
        let window = Window {
            kernel_size: [1, kernel_size],
            stride: [1, from.trailing("stride").positive_if_any().unwrap_or(kernel_size)],
            padding: [0, from.option("padding").whole(0)],
            dilation: [1, from.option("dilation").positive(1)],
        };
        MaxPool1d(Maxima { window, ceil_mode: from.option("ceil_mode").flag(false) })
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        b.on_row(x[0], |b, row, [channels, height, width]| self.0.on(b, row, channels, [height, width]))
    }
}
