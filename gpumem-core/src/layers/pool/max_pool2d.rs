use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{MaxPool, Window};

/// `MaxPool2d(kernel_size, stride = kernel_size, padding = 0, dilation = 1, ceil_mode = false)`: the maximum over windows.
///
/// * Options: `stride = kernel_size`, `padding = 0`, `dilation = 1`, each a number or a pair `(height, width)`;
///   `ceil_mode = false`.
/// * Input `[C, H, W]`, output `[C, H', W']` with
///   `H' = floor((H + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1`, and `W'` likewise; with
///   `ceil_mode` the division rounds up.
/// * Parameters: none.
/// * Backward keeps the position of each maximum in its window, 1 byte an output element, or 4 where windows have more than 255 elements.
///
/// PyTorch: `torch.nn.MaxPool2d(kernel_size, stride, padding, dilation, ceil_mode=ceil_mode)`.
#[derive(Clone, Debug)]
pub struct MaxPool2d {
    pub(super) window: Window,
    pub(super) ceil_mode: bool,
}

impl Layer for MaxPool2d {
    const NAME: &'static str = "MaxPool2d";

    fn read(from: &mut Arguments<'_>) -> MaxPool2d {
        let kernel_size = from.required("kernel_size").positive_pair();
        let window = Window {
            kernel_size,
            stride: from.trailing("stride").positive_pair_if_any().unwrap_or(kernel_size),
            padding: from.option("padding").pair([0, 0]),
            dilation: from.option("dilation").positive_pair([1, 1]),
        };
        MaxPool2d { window, ceil_mode: from.option("ceil_mode").flag(false) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let map = x[0].feature_map()?;
        self.on(b, x[0], map)
    }
}

impl MaxPool2d {
    /// The pooling of a map of this size, which may be the one row of a signal.
    pub(super) fn on(&self, b: &mut Builder<'_>, x: Value, map: [u64; 3]) -> Result<Value, Mistake> {
        let [channels, height, width] = map;
        b.report(self.window.too_much_padding());
        let input = [height, width];
        let output = self.window.positions(input, self.ceil_mode)?;
        b.op(MaxPool { channels, window: self.window, adaptive: false, input, output }, &[x])
    }
}
