use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Normalize;
use crate::shape::product;
use alloc::format;
use alloc::vec;

/// `GroupNorm(num_groups, eps = 1e-5, affine = true)`: normalisation of groups of channels. With `num_channels`,
/// `GroupNorm(num_groups, num_channels)`, the input is checked.
///
/// * Options: `eps = 1e-5`, `affine = true`.
/// * Input and output `[C, ..]`. `num_groups` divides the channels, and a group has at least two elements. Each sample's group of
///   `C / num_groups` channels is normalised with its own mean and biased variance, in training as in inference.
/// * Parameters: with `affine`, `weight` `[C]` = 1 and `bias` `[C]` = 0.
/// * Backward keeps the input and two statistics a group: mean and `1 / sqrt(variance + eps)`.
///
/// PyTorch: `torch.nn.GroupNorm(num_groups, num_channels, eps, affine)`.
#[derive(Clone, Debug)]
pub struct GroupNorm {
    num_groups: u64,
    num_channels: Option<u64>,
    eps: f64,
    affine: bool,
}

impl GroupNorm {
    /// Returns a norm in which every channel is a group of its own.
    pub(super) fn of_each(channels: u64, eps: f64, affine: bool) -> GroupNorm {
        GroupNorm { num_groups: channels, num_channels: None, eps, affine }
    }
}

impl Layer for GroupNorm {
    const NAME: &'static str = "GroupNorm";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> GroupNorm {
        GroupNorm {
            num_groups: from.required("num_groups").positive(),
            num_channels: from.trailing("num_channels").integer(),
            eps: from.option("eps").number_from(1e-5, 0.0),
            affine: from.option("affine").flag(true),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers()?;
        b.report(x[0].unexpected_channels(self.num_channels));
        if shape.elements() == Some(self.num_groups) {
            let rest = if self.affine { "the bias" } else { "0" };
            b.report(Mistake::of(
                "num_groups",
                format!(
                    "normalises {} groups of a single element each, of which nothing is left but {rest}; use fewer groups, or normalise \
                     where a channel has more elements than one",
                    self.num_groups
                ),
            ));
        }
        self.on(b, x[0])
    }
}

impl GroupNorm {
    /// Adds the normalisation of a value whose groups have any number of elements.
    pub(super) fn on(&self, b: &mut Builder<'_>, x: Value) -> Result<Value, Mistake> {
        let shape = x.numbers()?;
        let channels = shape.dims().first().copied().unwrap_or(1);
        let GroupNorm { num_groups: groups, eps, affine, .. } = *self;
        if !channels.is_multiple_of(groups) {
            return Err(Mistake::of(
                "num_groups",
                format!(
                    "has {groups} groups, which do not divide its {channels} channels; use a divisor of {channels}"
                ),
            ));
        }
        let shared = product(&shape.dims()[1..]);
        let length = product(&[channels / groups, shared]);
        let op =
            Normalize { rows: groups, length, center: true, eps, groups, shared, scale: affine, shift: affine, shape };
        let mut inputs = vec![x];
        if affine {
            inputs.extend([b.scale(&[channels]), b.shift(&[channels])]);
        }
        b.op(op, &inputs)
    }
}
