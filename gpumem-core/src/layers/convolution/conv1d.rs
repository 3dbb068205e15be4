use super::{Axes, Plain};
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::linear::Reparametrization;
use crate::layers::mistake::Mistake;

/// `Conv1d(out_channels, kernel_size, stride = 1, padding = 0, dilation = 1, groups = 1, bias = true)`: 1-D convolution. With `in_channels`
/// first, `Conv1d(in_channels, out_channels, kernel_size)`, the input is checked.
///
/// * Options: `stride = 1`, `padding = 0`, `dilation = 1`, `groups = 1`, `bias = true`. `padding = "same"` gives the output the input's
///   length, if `stride` is 1; `"valid"` is no padding.
/// * Options of a weight that is computed from other parameters: [`weight_norm`, `spectral_norm`, and `standardized` with `gamma` and
///   `eps`](crate::layers::linear).
/// * Input `[in_channels, L]`, output `[out_channels, L']` with
///   `L' = floor((L + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1`.
/// * Parameters: `weight` `[out_channels, in_channels / groups, kernel_size]` and, with `bias`, `bias` `[out_channels]`, both
///   uniform within `1 / sqrt(fan_in)`, `fan_in = in_channels / groups * kernel_size`.
/// * With `cache` in `INFER` it must be causal: `stride = 1`, `padding = dilation * (kernel_size - 1)`, and after it
///   `Slice(0, -padding, dim = -1)`. The last `padding` columns of the input are kept between calls.
/// * Backward keeps the input, unless a `BatchNorm` before this layer recomputes it: see [`Checkpoint::Norms`](crate::Checkpoint::Norms).
///
/// PyTorch: `torch.nn.Conv1d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)`.
#[derive(Clone, Debug)]
pub struct Conv1d(Plain<2>);

impl Layer for Conv1d {
    const NAME: &'static str = "Conv1d";

    fn read(from: &mut Arguments<'_>) -> Conv1d {
        Conv1d(Plain {
            in_channels: from.leading("in_channels").integer(),
            out_channels: from.required("out_channels").positive(),
            kernel_size: [1, from.required("kernel_size").positive()],
            stride: [1, from.option("stride").positive(1)],
            padding: from.option("padding").padding_of_row(),
            dilation: [1, from.option("dilation").positive(1)],
            groups: from.option("groups").positive(1),
            bias: from.option("bias").flag(true),
            made: Reparametrization::read(from),
        })
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        b.report(x[0].signal().ok().and_then(|_| x[0].unexpected_channels(self.0.in_channels)));
        b.on_row(x[0], |b, row, [channels, height, width]| self.0.on(b, row, channels, [height, width], Axes::One))
    }
}
