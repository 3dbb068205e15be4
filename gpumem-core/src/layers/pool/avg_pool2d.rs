use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{AveragePool, Window, Windows};

/// `AvgPool2d(kernel_size, stride = kernel_size, padding = 0, ceil_mode = false, count_include_pad = true)`: the mean over
/// windows.
///
/// * Options: `stride = kernel_size`, `padding = 0`, each a number or a pair `(height, width)`;
///   `ceil_mode = false`, `count_include_pad = true` (whether zeros of the padding count in the mean).
/// * Input `[C, H, W]`, output `[C, H', W']` with `H' = floor((H + 2 * padding - kernel_size) / stride) + 1`, and
///   `W'` likewise; with `ceil_mode` the division rounds up.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.AvgPool2d(kernel_size, stride, padding, ceil_mode, count_include_pad)`.
#[derive(Clone, Debug)]
pub struct AvgPool2d {
    pub(super) window: Window,
    pub(super) ceil_mode: bool,
    pub(super) count_include_pad: bool,
}

impl Layer for AvgPool2d {
    const NAME: &'static str = "AvgPool2d";

    fn read(from: &mut Arguments<'_>) -> AvgPool2d {
        let kernel_size = from.required("kernel_size").positive_pair();
        let window = Window {
            kernel_size,
            stride: from.trailing("stride").positive_pair_if_any().unwrap_or(kernel_size),
            padding: from.option("padding").pair([0, 0]),
            dilation: [1, 1],
        };
        AvgPool2d {
            window,
            ceil_mode: from.option("ceil_mode").flag(false),
            count_include_pad: from.option("count_include_pad").flag(true),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let map = x[0].feature_map()?;
        self.on(b, x[0], map)
    }
}

impl AvgPool2d {
    /// The pooling of a map of this size, which may be the one row of a signal.
    pub(super) fn on(&self, b: &mut Builder<'_>, x: Value, map: [u64; 3]) -> Result<Value, Mistake> {
        let [channels, height, width] = map;
        let AvgPool2d { window, ceil_mode, count_include_pad } = *self;
        b.report(window.too_much_padding());
        let input = [height, width];
        let output = window.positions(input, ceil_mode)?;
        let windows = Windows::Sliding { window, count_include_pad };
        b.op(AveragePool { channels, windows, input, output }, &[x])
    }
}
