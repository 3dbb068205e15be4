use super::Group;
use super::table::{Corrections, Row, State, Value};

/// `Adam { lr: 1e-3 }`: Adam with bias correction; `weight_decay` is added to the gradient (L2 regularisation).
///
/// ```text
/// g = gradient + weight_decay * w
/// m = beta1 * m + (1 - beta1) * g
/// v = beta2 * v + (1 - beta2) * g^2
/// s = max(s, v)                                            (with amsgrad, else s = v)
/// w = w - lr / (1 - beta1^t) * m / (sqrt(s / (1 - beta2^t)) + eps)
/// ```
///
/// Keeps two tensors of the parameter's size, `m` and `v`; another one, `s`, with `amsgrad`.
///
/// PyTorch: `torch.optim.Adam(params, lr, betas, eps, weight_decay, amsgrad)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Learning rate. 1e-3 if left out.
    pub lr: f64,
    /// Decay rates of the two running means, each at least 0 and below 1. (0.9, 0.999) if left out.
    pub betas: (f64, f64),
    /// Added to the denominator. 1e-8 if left out.
    pub eps: f64,
    /// L2 regularisation. 0 if left out.
    pub weight_decay: f64,
    /// True if a step divides by the root of the largest mean square so far, not of the last one. `false` if left out: no memory for it.
    pub amsgrad: bool,
    /// Parameters with a learning rate or a weight decay of their own. None if left out.
    pub groups: &'static [Group],
}

impl Adam {
    /// PyTorch's defaults.
    pub const DEFAULT: Adam =
        Adam { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, amsgrad: false, groups: &[] };

    /// The facts about the optimizer that do not depend on the values of hyperparameters.
    pub const ROW: Row = Row {
        name: "Adam",
        fields: &["lr", "betas", "eps", "weight_decay", "amsgrad"],
        states: &[
            State::always("exp_avg"),
            State::always("exp_avg_sq").not_negative(),
            State::unless_zero("max_exp_avg_sq", "amsgrad").not_negative(),
        ],
        corrections: Corrections::Betas,
    };

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
}
