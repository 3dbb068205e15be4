//! `Linear(10)`: affine maps.

#[expect(clippy::module_inception, reason = "a layer has a file of its name, in the folder of its family")]
mod linear;
mod scale;
mod tied;

pub use linear::Linear;
pub use scale::Scale;
pub use tied::Tied;

use super::Entry;
use super::builder::{Builder, Value};
use crate::number::{Role, inverse_sqrt};
use crate::program::Init;
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// The layers of the family.
pub(super) const LAYERS: &[Entry] = &[Entry::of::<Linear>(), Entry::of::<Tied>(), Entry::of::<Scale>()];

/// `x` with a weight and maybe a bias of `bias` elements, uniform within `1 / sqrt(fan_in)`: what PyTorch's
/// `kaiming_uniform_(weight, a = sqrt(5))` comes to.
pub(super) fn weight_and_bias(
    b: &mut Builder<'_>,
    x: Value,
    weight: Shape,
    fan_in: u64,
    bias: Option<u64>,
) -> Vec<Value> {
    let init = Init::Uniform(inverse_sqrt(fan_in));
    let mut values = vec![x, b.parameter("weight", weight.dims(), Role::Weight, init)];
    values.extend(bias.map(|length| b.parameter("bias", &[length], Role::Weight, init)));
    values
}
