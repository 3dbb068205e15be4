//! Affine maps, as `Linear(10)`.
//!
//! The weight of [`Linear`] and of the convolutions may be computed from other parameters, once in a step for the whole batch. Beside the
//! weight, backward keeps one or two f32 for each row or filter.
//!
//! * `weight_norm`: lengths times directions, `g * v / |v|`, with a length for each row, or filter; with `weight_norm = 2`, for each index
//!   of axis 2 of the weight. Parameters: `parametrizations.weight.original1` is v, initialised as the weight would be, and
//!   `parametrizations.weight.original0` is g, the lengths of v. With `weight_norm_names = "weight_g"` they are `weight_v` and `weight_g`.
//!   PyTorch: `torch.nn.utils.parametrizations.weight_norm(module, dim=0)`; with the other names `torch.nn.utils.weight_norm`.
//! * `standardized`: each row, or filter, is normalised to mean 0 and variance 1; `eps = 1e-6` is added to the variance. Parameter:
//!   `weight`, initialised as without the option. timm: `StdConv2d`. `gamma = 1.0` scales each by a learned factor, `gain`
//!   `[out_channels, 1, 1, 1]` = 1, times `gamma / sqrt(fan_in)`: timm's `ScaledStdConv2d(.., gamma, eps)`.
//! * `spectral_norm`: the weight divided by an estimate of its largest singular value. Its singular vectors move by one step of the power
//!   iteration in each training step (with `micro_batches`, in each micro-batch), and stay in `eval` and inference. The rows of the matrix
//!   are the output channels; `spectral_norm = 1` takes another axis of the weight. Parameter: `parametrizations.weight.original`,
//!   initialised as the weight would be; buffers: `parametrizations.weight.0._u` and `_v`, one f32 for each row and column. Backward keeps
//!   a copy of them. PyTorch: `torch.nn.utils.parametrizations.spectral_norm(module)`.

#[expect(clippy::module_inception, reason = "a layer has a file of its name, in the folder of its family")]
mod linear;
mod reparametrization;
mod scale;
mod tied;

pub use linear::Linear;
pub(super) use reparametrization::Reparametrization;
pub use scale::Scale;
pub use tied::Tied;

use super::Entry;
use super::builder::{Builder, Value};
use super::mistake::Mistake;
use crate::number::{Role, inverse_sqrt};
use crate::program::Init;
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// The layers of this family.
pub(super) const LAYERS: &[Entry] = &[Entry::of::<Linear>(), Entry::of::<Tied>(), Entry::of::<Scale>()];

/// Returns `x` with a weight and maybe a bias of `bias` elements, uniform within `1 / sqrt(fan_in)`, as PyTorch's
/// `kaiming_uniform_(weight, a = sqrt(5))` draws them. If the weight is computed from parameters, the first of these is drawn like that.
///
/// # Errors
/// A weight of more elements than a tensor can have.
pub(super) fn weight_and_bias(
    b: &mut Builder<'_>,
    x: Value,
    weight: Shape,
    fan_in: u64,
    bias: Option<u64>,
    made: &Reparametrization,
) -> Result<Vec<Value>, Mistake> {
    let init = Init::Uniform(inverse_sqrt(fan_in));
    let mut values = vec![x, made.weight(b, weight, init)?];
    values.extend(bias.map(|length| b.parameter("bias", &[length], Role::Weight, init)));
    Ok(values)
}
