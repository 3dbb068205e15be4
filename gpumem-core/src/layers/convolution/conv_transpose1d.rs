use super::{Axes, Transposed};
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::linear::Reparametrization;
use crate::layers::mistake::Mistake;
use crate::program::ops::Window;

/// `ConvTranspose1d(out_channels, kernel_size, stride = 1, padding = 0, output_padding = 0, dilation = 1, groups = 1, bias = true)`:
/// transposed 1-D convolution. With `in_channels` first, the input is checked.
///
/// * Options: `stride = 1`, `padding = 0`, `output_padding = 0`, `dilation = 1`, `groups = 1`, `bias = true`.
/// * Options of a weight that is computed from other parameters: [`weight_norm` and `spectral_norm`](crate::layers::linear).
/// * Input `[in_channels, L]`, output `[out_channels, L']` with
///   `L' = (L - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1`.
/// * Parameters: `weight` `[in_channels, out_channels / groups, kernel_size]` and, with `bias`, `bias` `[out_channels]`, both
///   uniform within `1 / sqrt(out_channels / groups * kernel_size)`.
/// * Backward keeps the input, unless a `BatchNorm` before this layer recomputes it: see [`Checkpoint::Norms`](crate::Checkpoint::Norms).
///
/// PyTorch: `torch.nn.ConvTranspose1d(in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias,
/// dilation)`.
#[derive(Clone, Debug)]
pub struct ConvTranspose1d(Transposed<2>);

impl Layer for ConvTranspose1d {
    const NAME: &'static str = "ConvTranspose1d";

    fn read(from: &mut Arguments<'_>) -> ConvTranspose1d {
        let in_channels = from.leading("in_channels").integer();
        let out_channels = from.required("out_channels").positive();
        let window = Window {
            kernel_size: [1, from.required("kernel_size").positive()],
            stride: [1, from.option("stride").positive(1)],
            padding: [0, from.option("padding").whole(0)],
            dilation: [1, from.option("dilation").positive(1)],
        };
        ConvTranspose1d(Transposed {
            in_channels,
            out_channels,
            window,
            output_padding: [0, from.option("output_padding").whole(0)],
            groups: from.option("groups").positive(1),
            bias: from.option("bias").flag(true),
            made: Reparametrization::norm(from, 1),
        })
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        b.report(x[0].signal().ok().and_then(|_| x[0].unexpected_channels(self.0.in_channels)));
        b.on_row(x[0], |b, row, [channels, height, width]| self.0.on(b, row, channels, [height, width], Axes::One))
    }
}
