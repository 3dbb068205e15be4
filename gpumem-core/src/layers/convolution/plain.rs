use super::{Axes, checked_groups, with_weight};
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::linear::Reparametrization;
use crate::layers::mistake::Mistake;
use crate::layers::window::Padding;
use crate::program::Op;
use crate::program::ops::{Convolution, Window};

/// A convolution of maps, or of volumes.
#[derive(Clone, Debug)]
pub(super) struct Plain<const N: usize> {
    pub(super) in_channels: Option<u64>,
    pub(super) out_channels: u64,
    pub(super) kernel_size: [u64; N],
    pub(super) stride: [u64; N],
    pub(super) padding: Padding<N>,
    pub(super) dilation: [u64; N],
    pub(super) groups: u64,
    pub(super) bias: bool,
    pub(super) made: Reparametrization,
}

impl<const N: usize> Plain<N> {
    /// Reads the arguments, each a number or one for each axis.
    pub(super) fn read(from: &mut Arguments<'_>) -> Plain<N> {
        Plain {
            in_channels: from.leading("in_channels").integer(),
            out_channels: from.required("out_channels").positive(),
            kernel_size: from.required("kernel_size").positive_sizes(),
            stride: from.option("stride").positive_sizes([1; N]),
            padding: from.option("padding").padding(),
            dilation: from.option("dilation").positive_sizes([1; N]),
            groups: from.option("groups").positive(1),
            bias: from.option("bias").flag(true),
            made: Reparametrization::read(from),
        }
    }

    /// Adds the convolution of `in_channels` channels of this size, which may be the one row of a signal.
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
        let op = self.operation(b, in_channels, input)?;
        with_weight(b, x, axes, op, &self.made)
    }

    /// Returns the operation on `in_channels` channels of this size.
    pub(super) fn operation(
        &self,
        b: &mut Builder<'_>,
        in_channels: u64,
        input: [u64; N],
    ) -> Result<Convolution<N>, Mistake> {
        let Plain { out_channels, kernel_size, stride, dilation, bias, .. } = *self;
        let groups = checked_groups(b, self.groups, in_channels, out_channels);
        let window = Window { kernel_size, stride, padding: [0; N], dilation };
        let (window, output) = match self.padding {
            Padding::Same => {
                b.report(window.too_far());
                let strided = core::array::from_fn(|axis| input[axis].div_ceil(stride[axis]));
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
        Ok(Convolution { in_channels, out_channels, window, groups, bias, transposed: false, input, output })
    }
}
