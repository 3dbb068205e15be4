//! Windows that slide over maps, or over volumes.

use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::Op;
use crate::program::ops::{AveragePool, MaxPool, Window, Windows};

/// Maxima over windows.
#[derive(Clone, Debug)]
pub(super) struct Maxima<const N: usize> {
    pub(super) window: Window<N>,
    pub(super) ceil_mode: bool,
}

impl<const N: usize> Maxima<N> {
    /// Reads the arguments, each a number or one for each axis.
    pub(super) fn read(from: &mut Arguments<'_>) -> Maxima<N> {
        let kernel_size = from.required("kernel_size").positive_sizes();
        let window = Window {
            kernel_size,
            stride: from.trailing("stride").positive_sizes_if_any().unwrap_or(kernel_size),
            padding: from.option("padding").sizes([0; N]),
            dilation: from.option("dilation").positive_sizes([1; N]),
        };
        Maxima { window, ceil_mode: from.option("ceil_mode").flag(false) }
    }

    /// Adds the pooling of `channels` channels of this size, which may be the one row of a signal.
    pub(super) fn on(&self, b: &mut Builder<'_>, x: Value, channels: u64, input: [u64; N]) -> Result<Value, Mistake>
    where
        Op: From<MaxPool<N>>,
    {
        b.report(self.window.too_much_padding());
        let output = self.window.positions(input, self.ceil_mode)?;
        b.report(self.window.lies_in_padding(input, output));
        b.op(MaxPool { channels, window: self.window, adaptive: false, input, output }, &[x])
    }
}

/// Means over windows.
#[derive(Clone, Debug)]
pub(super) struct Means<const N: usize> {
    pub(super) window: Window<N>,
    pub(super) ceil_mode: bool,
    pub(super) count_include_pad: bool,
}

impl<const N: usize> Means<N> {
    /// Reads the arguments, each a number or one for each axis.
    pub(super) fn read(from: &mut Arguments<'_>) -> Means<N> {
        let kernel_size = from.required("kernel_size").positive_sizes();
        let window = Window {
            kernel_size,
            stride: from.trailing("stride").positive_sizes_if_any().unwrap_or(kernel_size),
            padding: from.option("padding").sizes([0; N]),
            dilation: [1; N],
        };
        Means {
            window,
            ceil_mode: from.option("ceil_mode").flag(false),
            count_include_pad: from.option("count_include_pad").flag(true),
        }
    }

    /// Adds the pooling of `channels` channels of this size, which may be the one row of a signal.
    pub(super) fn on(&self, b: &mut Builder<'_>, x: Value, channels: u64, input: [u64; N]) -> Result<Value, Mistake>
    where
        Op: From<AveragePool<N>>,
    {
        let Means { window, ceil_mode, count_include_pad } = *self;
        b.report(window.too_much_padding());
        let output = window.positions(input, ceil_mode)?;
        let windows = Windows::Sliding { window, count_include_pad };
        b.op(AveragePool { channels, windows, input, output }, &[x])
    }
}
