use super::{Axes, checked_groups, convolve};
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{Convolution, Window};
use alloc::format;

/// `ConvTranspose2d(out_channels, kernel_size, stride = 1, padding = 0, output_padding = 0, dilation = 1, groups = 1,
/// bias = true)`: transposed 2-D convolution. With `in_channels` in front what arrives is checked.
///
/// * Options: `stride = 1`, `padding = 0`, `output_padding = 0`, `dilation = 1`, each a number or a pair
///   `(height, width)`; `groups = 1`, `bias = true`.
/// * Input `[in_channels, H, W]`, output `[out_channels, H', W']` with
///   `H' = (H - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1`, and `W'` likewise.
/// * Parameters: `weight` `[in_channels, out_channels / groups, kernel_height, kernel_width]` and, with `bias`,
///   `bias` `[out_channels]`, both uniform within `1 / sqrt(out_channels / groups * kernel_height * kernel_width)`.
/// * Backward keeps the input.
///
/// PyTorch: `torch.nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride, padding, output_padding,
/// groups, bias, dilation)`.
#[derive(Clone, Debug)]
pub struct ConvTranspose2d {
    pub(super) in_channels: Option<u64>,
    pub(super) out_channels: u64,
    pub(super) window: Window,
    pub(super) output_padding: [u64; 2],
    pub(super) groups: u64,
    pub(super) bias: bool,
}

/// `(input - 1) * stride + dilation * (kernel_size - 1) + output_padding + 1 - 2 * padding`; `None` beyond `u64`, 0 if
/// the padding cuts everything away.
fn output_length(input: u64, kernel: u64, stride: u64, padding: u64, dilation: u64, extra: u64) -> Option<u64> {
    let spread = (input - 1).checked_mul(stride)?;
    let span = dilation.checked_mul(kernel - 1)?.checked_add(extra)?.checked_add(1)?;
    Some(spread.checked_add(span)?.saturating_sub(padding.checked_mul(2)?))
}

impl ConvTranspose2d {
    /// Length of the output along one axis.
    fn length(&self, input: u64, axis: usize) -> Result<u64, Mistake> {
        let Window { kernel_size, stride, padding, dilation } = self.window;
        let extra = self.output_padding[axis];
        if extra >= stride[axis].max(dilation[axis]) {
            let text = "needs `output_padding` to be below its stride or its dilation";
            return Err(Mistake::of("output_padding", text));
        }
        match output_length(input, kernel_size[axis], stride[axis], padding[axis], dilation[axis], extra) {
            None => Err(Mistake::new("has an output whose size exceeds 64-bit arithmetic")),
            Some(0) => {
                let text = format!("has padding {} that leaves no output; use less padding", padding[axis]);
                Err(Mistake::of("padding", text))
            }
            Some(length) => Ok(length),
        }
    }
}

impl Layer for ConvTranspose2d {
    const NAME: &'static str = "ConvTranspose2d";

    fn read(from: &mut Arguments<'_>) -> ConvTranspose2d {
        let in_channels = from.leading("in_channels").integer();
        let out_channels = from.required("out_channels").positive();
        let window = Window {
            kernel_size: from.required("kernel_size").positive_pair(),
            stride: from.option("stride").positive_pair([1, 1]),
            padding: from.option("padding").pair([0, 0]),
            dilation: from.option("dilation").positive_pair([1, 1]),
        };
        ConvTranspose2d {
            in_channels,
            out_channels,
            window,
            output_padding: from.option("output_padding").pair([0, 0]),
            groups: from.option("groups").positive(1),
            bias: from.option("bias").flag(true),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let map = x[0].feature_map()?;
        b.report(x[0].unexpected_channels(self.in_channels));
        self.on(b, x[0], map, Axes::Two)
    }
}

impl ConvTranspose2d {
    /// The transposed convolution of a map of this size, which may be the one row of a signal.
    pub(super) fn on(&self, b: &mut Builder<'_>, x: Value, map: [u64; 3], axes: Axes) -> Result<Value, Mistake> {
        let [in_channels, height, width] = map;
        let ConvTranspose2d { out_channels, window, bias, .. } = *self;
        let groups = checked_groups(b, self.groups, in_channels, out_channels);
        let output = [self.length(height, 0)?, self.length(width, 1)?];
        let (input, transposed) = ([height, width], true);
        convolve(b, x, axes, Convolution { in_channels, out_channels, window, groups, bias, transposed, input, output })
    }
}
