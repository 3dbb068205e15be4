use super::{Axes, checked_groups, convolve};
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::layers::window::Padding;
use crate::program::ops::{Convolution, Window};

/// `Conv2d(out_channels, kernel_size, stride = 1, padding = 0, dilation = 1, groups = 1, bias = true)`: 2-D convolution. With
/// `in_channels` in front, `Conv2d(in_channels, out_channels, kernel_size)`, what arrives is checked.
///
/// * Options: `stride = 1`, `padding = 0`, `dilation = 1`, each a number or a pair `(height, width)`; `groups = 1`,
///   `bias = true`. `padding = "same"` gives the output the input's size, where `stride` is 1; `"valid"` is none.
/// * Input `[in_channels, H, W]`, output `[out_channels, H', W']` with
///   `H' = floor((H + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1`, and `W'` likewise.
/// * Parameters: `weight` `[out_channels, in_channels / groups, kernel_height, kernel_width]` and, with `bias`,
///   `bias` `[out_channels]`, both uniform within `1 / sqrt(fan_in)`,
///   `fan_in = in_channels / groups * kernel_height * kernel_width`.
/// * Backward keeps the input.
///
/// PyTorch: `torch.nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)`.
#[derive(Clone, Debug)]
pub struct Conv2d {
    pub(super) in_channels: Option<u64>,
    pub(super) out_channels: u64,
    pub(super) kernel_size: [u64; 2],
    pub(super) stride: [u64; 2],
    pub(super) padding: Padding,
    pub(super) dilation: [u64; 2],
    pub(super) groups: u64,
    pub(super) bias: bool,
}

impl Layer for Conv2d {
    const NAME: &'static str = "Conv2d";

    fn read(from: &mut Arguments<'_>) -> Conv2d {
        Conv2d {
            in_channels: from.leading("in_channels").integer(),
            out_channels: from.required("out_channels").positive(),
            kernel_size: from.required("kernel_size").positive_pair(),
            stride: from.option("stride").positive_pair([1, 1]),
            padding: from.option("padding").padding(),
            dilation: from.option("dilation").positive_pair([1, 1]),
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

impl Conv2d {
    /// The convolution of a map of this size, which may be the one row of a signal.
    pub(super) fn on(&self, b: &mut Builder<'_>, x: Value, map: [u64; 3], axes: Axes) -> Result<Value, Mistake> {
        let [in_channels, height, width] = map;
        let Conv2d { out_channels, kernel_size, stride, dilation, bias, .. } = *self;
        let groups = checked_groups(b, self.groups, in_channels, out_channels);
        let input = [height, width];
        let window = Window { kernel_size, stride, padding: [0, 0], dilation };
        let (window, output) = match self.padding {
            Padding::Same => {
                let strided = [0, 1].map(|axis| input[axis].div_ceil(stride[axis]));
                let output = match window.strides_over_same() {
                    Some(mistake) => {
                        b.report(mistake);
                        b.any([strided, input])
                    }
                    None => input,
                };
                (window.padded_to_same(), output)
            }
            Padding::Each(padding) => {
                let window = Window { padding, ..window };
                (window, window.positions(input, false)?)
            }
        };
        let transposed = false;
        convolve(b, x, axes, Convolution { in_channels, out_channels, window, groups, bias, transposed, input, output })
    }
}
