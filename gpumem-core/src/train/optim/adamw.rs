use super::element::{ElementRule, STATES, Scalar, StepScalars};
use super::table::{Corrections, Row, State, Value};
use super::{Adam, Group};

/// `AdamW { lr: 1e-3 }`: Adam with decoupled weight decay: the weight shrinks by `lr * weight_decay` before the update, and the gradient is
/// left alone.
///
/// ```text
/// w = w * (1 - lr * weight_decay)
/// m = beta1 * m + (1 - beta1) * gradient
/// v = beta2 * v + (1 - beta2) * gradient^2
/// s = max(s, v)                                            (with amsgrad, else s = v)
/// w = w - lr / (1 - beta1^t) * m / (sqrt(s / (1 - beta2^t)) + eps)
/// ```
///
/// Keeps two tensors of the parameter's size, `m` and `v`; another one, `s`, with `amsgrad`.
///
/// PyTorch: `torch.optim.AdamW(params, lr, betas, eps, weight_decay, amsgrad)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate. 1e-3 if left out.
    pub lr: f64,
    /// Decay rates of the two running means, each at least 0 and below 1. (0.9, 0.999) if left out.
    pub betas: (f64, f64),
    /// Added to the denominator. 1e-8 if left out.
    pub eps: f64,
    /// Decoupled weight decay: a step takes away this share of a weight, times `lr`. 0.01 if left out.
    pub weight_decay: f64,
    /// True if a step divides by the root of the largest mean square so far, not of the last one. `false` if left out: no memory for it.
    pub amsgrad: bool,
    /// Parameters with a learning rate, a weight decay, `betas` or an `eps` of their own. None if left out.
    pub groups: &'static [Group],
}

impl AdamW {
    /// PyTorch's defaults.
    pub const DEFAULT: AdamW =
        AdamW { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 1e-2, amsgrad: false, groups: &[] };

    /// The facts about the optimizer that do not depend on the values of hyperparameters.
    pub const ROW: Row = Row {
        name: "AdamW",
        fields: &["lr", "betas", "eps", "weight_decay", "amsgrad"],
        of_groups: &["betas", "eps"],
        states: &[
            State::always("exp_avg"),
            State::always("exp_avg_sq").not_negative(),
            State::unless_zero("max_exp_avg_sq", "amsgrad").not_negative(),
        ],
        corrections: Corrections::Betas,
    };

    /// Returns the optimizer whose step it has, without weight decay.
    #[inline(always)]
    fn adam(self) -> Adam {
        let AdamW { lr, betas, eps, amsgrad, groups, .. } = self;
        Adam { lr, betas, eps, weight_decay: 0.0, amsgrad, groups }
    }

    /// Returns the numbers of its rule, except the learning rate.
    pub(super) const fn values(&self) -> [Value; 5] {
        [
            Value::decay("beta1", self.betas.0),
            Value::decay("beta2", self.betas.1),
            Value::not_negative("eps", self.eps),
            Value::not_negative("weight_decay", self.weight_decay),
            Value::flag("amsgrad", self.amsgrad),
        ]
    }

    /// Returns the optimizer with the numbers of its rule that a group sets.
    pub(super) fn with_group(self, group: &Group) -> AdamW {
        AdamW { betas: group.betas.unwrap_or(self.betas), eps: group.eps.unwrap_or(self.eps), ..self }
    }
}

impl ElementRule<3> for AdamW {
    fn factors<N: Scalar>(&self, step: StepScalars<N>) -> [N; 3] {
        let shrink = step.shrink();
        let [rate, root] = Adam::corrected(&step);
        [rate, root, shrink]
    }

    #[inline(always)]
    fn update<N: Scalar>(&self, [rate, root, shrink]: [N; 3], w: &mut N, g: N, states: [&mut N; STATES]) {
        *w = *w * shrink - self.adam().step([rate, root], g, states);
    }
}
