use super::element::{ElementRule, STATES, Scalar, StepScalars};
use super::table::{Corrections, Extent, Row, State, Value};
use super::{AdamW, Group};
use crate::number::dynamic_8bit::DynamicMap;

/// `AdamW8bit { lr: 1e-3 }`: [`AdamW`](super::AdamW) with one byte for each element of its two means, in place of four.
///
/// ```text
/// w = w * (1 - lr * weight_decay)
/// m = beta1 * m + (1 - beta1) * gradient
/// v = beta2 * v + (1 - beta2) * gradient^2
/// w = w - lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
/// ```
///
/// The step is computed in f32. Between steps an element of `m` or `v` is a code of 8 bits: the index of the entry of a dynamic map that is
/// nearest to it after multiplication with the scale of its block. A block is 256 consecutive elements of one parameter in row-major order;
/// the last block has the rest. Its scale is the largest magnitude in it. `m` has the map with both signs, `v` the unsigned one: see
/// [`DynamicMap`]. An element of `v` above 0 stays above 0. T. Dettmers, M. Lewis, S. Shleifer and L. Zettlemoyer, "8-bit Optimizers via
/// Block-wise Quantization" (ICLR 2022).
///
/// Keeps one byte an element for `m` and for `v`, and 4 bytes for each block of both, if a parameter has 4096 elements or more: 2.03 bytes
/// an element at any precision. A smaller parameter, such as a bias, has `m` and `v` in f32. The state tensors are named `exp_avg.codes`
/// and `exp_avg_sq.codes`, with codes as numbers from 0 to 255, and `exp_avg.scale` and `exp_avg_sq.scale`; in f32 they are `exp_avg` and
/// `exp_avg_sq`.
///
/// PyTorch: `torchao.optim.AdamW8bit(params, lr, betas, eps, weight_decay)` and `bitsandbytes.optim.AdamW8bit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW8bit {
    /// Learning rate. 1e-3 if left out.
    pub lr: f64,
    /// Decay rates of the two running means, each at least 0 and below 1. (0.9, 0.999) if left out.
    pub betas: (f64, f64),
    /// Added to the denominator. 1e-8 if left out.
    pub eps: f64,
    /// Decoupled weight decay: a step takes away this share of a weight, times `lr`. 0.01 if left out.
    pub weight_decay: f64,
    /// Parameters with a learning rate, a weight decay, `betas` or an `eps` of their own. None if left out.
    pub groups: &'static [Group],
}

impl AdamW8bit {
    /// PyTorch's defaults of `AdamW`.
    pub const DEFAULT: AdamW8bit =
        AdamW8bit { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 1e-2, groups: &[] };

    /// The maps of `m` and of `v`.
    pub const MAPS: [&'static DynamicMap; 2] = [DynamicMap::SIGNED, DynamicMap::UNSIGNED];

    /// The facts about the optimizer that do not depend on the values of hyperparameters.
    pub const ROW: Row = Row {
        name: "AdamW8bit",
        fields: &["lr", "betas", "eps", "weight_decay"],
        of_groups: &["betas", "eps"],
        states: &[
            State::always("exp_avg.codes").of(Extent::Codes).or_whole("exp_avg"),
            State::always("exp_avg_sq.codes").not_negative().of(Extent::Codes).or_whole("exp_avg_sq"),
            State::always("exp_avg.scale").not_negative().of(Extent::Blocks),
            State::always("exp_avg_sq.scale").not_negative().of(Extent::Blocks),
        ],
        corrections: Corrections::Betas,
    };

    /// Returns the optimizer of the same rule, with states that are not encoded.
    fn adamw(self) -> AdamW {
        let AdamW8bit { lr, betas, eps, weight_decay, groups } = self;
        AdamW { lr, betas, eps, weight_decay, amsgrad: false, groups }
    }

    /// Returns the numbers of its rule, except the learning rate.
    pub(super) const fn values(&self) -> [Value; 4] {
        [
            Value::decay("beta1", self.betas.0),
            Value::decay("beta2", self.betas.1),
            Value::not_negative("eps", self.eps),
            Value::not_negative("weight_decay", self.weight_decay),
        ]
    }

    /// Returns the optimizer with the numbers of its rule that a group sets.
    pub(super) fn with_group(self, group: &Group) -> AdamW8bit {
        AdamW8bit { betas: group.betas.unwrap_or(self.betas), eps: group.eps.unwrap_or(self.eps), ..self }
    }
}

/// The rule of [`AdamW`], on states that the backend has decoded.
impl ElementRule<3> for AdamW8bit {
    fn factors<N: Scalar>(&self, step: StepScalars<N>) -> [N; 3] {
        self.adamw().factors(step)
    }

    #[inline(always)]
    fn update<N: Scalar>(&self, factors: [N; 3], w: &mut N, g: N, states: [&mut N; STATES]) {
        self.adamw().update(factors, w, g, states);
    }
}
