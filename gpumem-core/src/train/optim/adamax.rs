use super::Group;
use super::element::{ElementRule, STATES, Scalar, StepScalars, average};
use super::table::{Corrections, Row, State, Value};

/// `Adamax { lr: 2e-3 }`: Adam with a running maximum of the gradient's size in place of its root mean square.
///
/// ```text
/// g = gradient + weight_decay * w
/// m = beta1 * m + (1 - beta1) * g
/// u = max(beta2 * u, |g| + eps)
/// w = w - lr / (1 - beta1^t) * m / u
/// ```
///
/// Keeps two tensors of the parameter's size, `m` and `u`.
///
/// PyTorch: `torch.optim.Adamax(params, lr, betas, eps, weight_decay)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adamax {
    /// Learning rate. 2e-3 if left out.
    pub lr: f64,
    /// Decay rates of the running mean and of the running maximum, each at least 0 and below 1. (0.9, 0.999) if left out.
    pub betas: (f64, f64),
    /// Added to the gradient's size. 1e-8 if left out.
    pub eps: f64,
    /// L2 regularisation. 0 if left out.
    pub weight_decay: f64,
    /// Parameters with a learning rate, a weight decay, `betas` or an `eps` of their own. None if left out.
    pub groups: &'static [Group],
}

impl Adamax {
    /// PyTorch's defaults.
    pub const DEFAULT: Adamax = Adamax { lr: 2e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, groups: &[] };

    /// The facts about the optimizer that do not depend on the values of hyperparameters.
    pub const ROW: Row = Row {
        name: "Adamax",
        fields: &["lr", "betas", "eps", "weight_decay"],
        of_groups: &["betas", "eps"],
        states: &[State::always("exp_avg"), State::always("exp_inf").not_negative()],
        corrections: Corrections::Betas,
    };

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
    pub(super) fn with_group(self, group: &Group) -> Adamax {
        Adamax { betas: group.betas.unwrap_or(self.betas), eps: group.eps.unwrap_or(self.eps), ..self }
    }
}

impl ElementRule<2> for Adamax {
    fn factors<N: Scalar>(&self, step: StepScalars<N>) -> [N; 2] {
        [step.lr / step.corrections[0], step.weight_decay]
    }

    #[inline(always)]
    fn update<N: Scalar>(&self, [rate, decay]: [N; 2], w: &mut N, g: N, [m, u, _]: [&mut N; STATES]) {
        let g = g + *w * decay;
        average(m, self.betas.0, g);
        *u = (*u * self.betas.1).max(g.abs() + self.eps);
        *w = *w - rate * *m / *u;
    }
}
