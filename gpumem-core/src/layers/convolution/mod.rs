//! Convolutions, as `Conv2d(64, 3, padding = 1)`.

mod conv1d;
mod conv2d;
mod conv3d;
mod conv_transpose1d;
mod conv_transpose2d;
mod conv_transpose3d;
mod convolve;
mod plain;
mod transposed;

pub use conv_transpose1d::ConvTranspose1d;
pub use conv_transpose2d::ConvTranspose2d;
pub use conv_transpose3d::ConvTranspose3d;
pub use conv1d::Conv1d;
pub use conv2d::Conv2d;
pub use conv3d::Conv3d;
pub use convolve::{Convolve1d, Convolve2d, Convolve3d};
use plain::Plain;
use transposed::Transposed;

use super::Entry;
use super::builder::{Builder, Value};
use super::linear::{Reparametrization, weight_and_bias};
use super::mistake::Mistake;
use crate::program::Op;
use crate::program::ops::Convolution;
use crate::shape::{Shape, product};
use alloc::format;

/// The layers of this family.
pub(super) const LAYERS: &[Entry] = &[
    Entry::of::<Conv2d>(),
    Entry::of::<ConvTranspose2d>(),
    Entry::of::<Conv1d>(),
    Entry::of::<ConvTranspose1d>(),
    Entry::of::<Conv3d>(),
    Entry::of::<ConvTranspose3d>(),
    Entry::of::<Convolve1d>(),
    Entry::of::<Convolve2d>(),
    Entry::of::<Convolve3d>(),
];

/// The axes along which a convolution slides. A convolution along one axis runs on maps of one row, and its weight has no axis for rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axes {
    One,
    All,
}

/// Returns `groups` if it divides both channel counts; otherwise reports a mistake and returns 1.
fn checked_groups(b: &mut Builder<'_>, groups: u64, in_channels: u64, out_channels: u64) -> u64 {
    for (what, channels) in [("input", in_channels), ("output", out_channels)] {
        if !channels.is_multiple_of(groups) {
            let text = format!(
                "has groups = {groups}, which does not divide its {channels} {what} channels; \
                 use a number of groups that divides both {in_channels} and {out_channels}"
            );
            b.report(Mistake::of("groups", text));
            return 1;
        }
    }
    groups
}

/// Adds the operation with its weight and bias.
fn with_weight<const N: usize>(
    b: &mut Builder<'_>,
    x: Value,
    axes: Axes,
    op: Convolution<N>,
    made: &Reparametrization,
) -> Result<Value, Mistake>
where
    Op: From<Convolution<N>>,
{
    let weight = op.weight();
    let fan_in = product(&weight.dims()[1..]);
    let weight = match (axes, weight.dims()) {
        (Axes::One, &[first, second, _, length]) => Shape::new(&[first, second, length]),
        _ => weight,
    };
    let inputs = weight_and_bias(b, x, weight, fan_in, op.bias.then_some(op.out_channels), made)?;
    b.op(op, &inputs)
}
