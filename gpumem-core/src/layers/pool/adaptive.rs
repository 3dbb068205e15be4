//! Adaptive pooling of maps or volumes: as many windows as the output has elements.

use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::Op;
use crate::program::ops::{AveragePool, MaxPool, Window, Windows};

/// Adds means over so many windows along each axis.
pub(super) fn means<const N: usize>(
    b: &mut Builder<'_>,
    x: Value,
    channels: u64,
    input: [u64; N],
    output: [u64; N],
) -> Result<Value, Mistake>
where
    Op: From<AveragePool<N>>,
{
    b.op(AveragePool { channels, windows: Windows::Adaptive, input, output }, &[x])
}

/// Adds maxima over so many windows along each axis.
pub(super) fn maxima<const N: usize>(
    b: &mut Builder<'_>,
    x: Value,
    channels: u64,
    input: [u64; N],
    output: [u64; N],
) -> Result<Value, Mistake>
where
    Op: From<MaxPool<N>>,
{
    let divides = |axis: usize| input[axis].is_multiple_of(output[axis]);
    let largest = core::array::from_fn(|axis| {
        let length = input[axis].div_ceil(output[axis]);
        // If the output size does not divide the input, a window may cover one element more.
        if divides(axis) { length } else { (length + 1).min(input[axis]) }
    });
    let window = Window { kernel_size: largest, stride: largest, padding: [0; N], dilation: [1; N] };
    b.op(MaxPool { channels, window, adaptive: !(0..N).all(divides), input, output }, &[x])
}
