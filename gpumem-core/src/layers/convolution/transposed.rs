use super::{Axes, checked_groups, with_weight};
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::linear::Reparametrization;
use crate::layers::mistake::Mistake;
use crate::program::Op;
use crate::program::ops::{Convolution, Window};
use alloc::format;

/// A transposed convolution of maps, or of volumes.
#[derive(Clone, Debug)]
pub(super) struct Transposed<const N: usize> {
    pub(super) in_channels: Option<u64>,
    pub(super) out_channels: u64,
    pub(super) window: Window<N>,
    pub(super) output_padding: [u64; N],
    pub(super) groups: u64,
    pub(super) bias: bool,
    pub(super) made: Reparametrization,
}

/// Returns `(input - 1) * stride + dilation * (kernel_size - 1) + output_padding + 1 - 2 * padding`; `None` beyond `u64`, 0 if the padding
/// cuts everything away.
fn output_length(input: u64, kernel: u64, stride: u64, padding: u64, dilation: u64, extra: u64) -> Option<u64> {
    let spread = (input - 1).checked_mul(stride)?;
    let span = dilation.checked_mul(kernel - 1)?.checked_add(extra)?.checked_add(1)?;
    Some(spread.checked_add(span)?.saturating_sub(padding.checked_mul(2)?))
}

impl<const N: usize> Transposed<N> {
    /// Reads the arguments, each a number or one for each axis.
    pub(super) fn read(from: &mut Arguments<'_>) -> Transposed<N> {
        let in_channels = from.leading("in_channels").integer();
        let out_channels = from.required("out_channels").positive();
        let window = Window {
            kernel_size: from.required("kernel_size").positive_sizes(),
            stride: from.option("stride").positive_sizes([1; N]),
            padding: from.option("padding").sizes([0; N]),
            dilation: from.option("dilation").positive_sizes([1; N]),
        };
        Transposed {
            in_channels,
            out_channels,
            window,
            output_padding: from.option("output_padding").sizes([0; N]),
            groups: from.option("groups").positive(1),
            bias: from.option("bias").flag(true),
            made: Reparametrization::norm(from, 1),
        }
    }

    /// Returns the length of the output along one axis.
    fn length(&self, input: u64, axis: usize) -> Result<u64, Mistake> {
        if let Some(mistake) = self.window.too_far() {
            return Err(mistake);
        }
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

    /// Adds the transposed convolution of `in_channels` channels of this size, which may be the one row of a signal.
    pub(super) fn on(
        &self,
        b: &mut Builder<'_>,
        x: Value,
        in_channels: u64,
        input: [u64; N],
        axes: Axes,
    ) -> Result<Value, Mistake>
    where
        Op: From<Convolution<N>>,
    {
        let Transposed { out_channels, window, bias, .. } = *self;
        let groups = checked_groups(b, self.groups, in_channels, out_channels);
        let mut output = [0; N];
        for (axis, output) in output.iter_mut().enumerate() {
            *output = self.length(input[axis], axis)?;
        }
        let transposed = true;
        with_weight(
            b,
            x,
            axes,
            Convolution { in_channels, out_channels, window, groups, bias, transposed, input, output },
            &self.made,
        )
    }
}
