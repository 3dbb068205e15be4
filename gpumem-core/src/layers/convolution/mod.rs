//! `Conv2d(64, 3, padding = 1)`: convolutions.

mod conv2d;
mod conv_transpose2d;

pub use conv_transpose2d::ConvTranspose2d;
pub use conv2d::Conv2d;

use super::Entry;
use super::builder::{Builder, Value};
use super::linear::weight_and_bias;
use super::mistake::Mistake;
use crate::program::ops::Convolution;
use crate::shape::product;
use alloc::format;

/// The layers of the family.
pub(super) const LAYERS: &[Entry] = &[Entry::of::<Conv2d>(), Entry::of::<ConvTranspose2d>()];

/// `groups` if it divides both channel counts; 1, with a mistake, if it does not.
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

/// The operation with its weight and bias.
fn convolve(b: &mut Builder<'_>, x: Value, op: Convolution) -> Result<Value, Mistake> {
    let weight = op.weight();
    let fan_in = product(&weight.dims()[1..]);
    let inputs = weight_and_bias(b, x, weight, fan_in, op.bias.then_some(op.out_channels));
    b.op(op, &inputs)
}
