use super::sliding::Means;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Window;

/// `AvgPool1d(kernel_size, stride = kernel_size, padding = 0, ceil_mode = false, count_include_pad = true)`: the mean over
/// windows.
///
/// * Options: `stride = kernel_size`, `padding = 0`, `ceil_mode = false`, `count_include_pad = true` (zeros of the padding count in the
///   mean).
/// * Input `[C, L]`, output `[C, L']` with `L' = floor((L + 2 * padding - kernel_size) / stride) + 1`; with `ceil_mode` the
///   division rounds up.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.AvgPool1d(kernel_size, stride, padding, ceil_mode, count_include_pad)`.
#[derive(Clone, Debug)]
pub struct AvgPool1d(Means<2>);

impl Layer for AvgPool1d {
    const NAME: &'static str = "AvgPool1d";

    fn read(from: &mut Arguments<'_>) -> AvgPool1d {
        let kernel_size = from.required("kernel_size").positive();
        let window = Window {
            kernel_size: [1, kernel_size],
            stride: [1, from.trailing("stride").positive_if_any().unwrap_or(kernel_size)],
            padding: [0, from.option("padding").whole(0)],
            dilation: [1, 1],
        };
        AvgPool1d(Means {
            window,
            ceil_mode: from.option("ceil_mode").flag(false),
            count_include_pad: from.option("count_include_pad").flag(true),
        })
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        b.on_row(x[0], |b, row, [channels, height, width]| self.0.on(b, row, channels, [height, width]))
    }
}
