use super::Group;
use super::element::{ElementRule, STATES, Scalar, StepScalars, average, average_square, bias_correction, decayed};
use super::table::{Corrections, Row, State, Value};

/// `RAdam { lr: 1e-3 }`: Adam that divides by its root mean square only once that is a mean of enough steps.
///
/// ```text
/// w = w * (1 - lr * weight_decay)                          (where decoupled)
/// g = gradient + weight_decay * w                          (elsewhere)
/// m = beta1 * m + (1 - beta1) * g
/// v = beta2 * v + (1 - beta2) * g^2
/// h = 2 / (1 - beta2) - 1
/// q(t) = h - 2 * t * beta2^t / (1 - beta2^t)
/// r(t) = sqrt((q - 4) * (q - 2) * h / ((h - 4) * (h - 2) * q))
/// d = m / (1 - beta1^t)
/// w = w - lr * d * r(t) * sqrt(1 - beta2^t) / (sqrt(v) + eps)          (where q(t) > 5)
/// w = w - lr * d                                                       (elsewhere)
/// ```
///
/// Keeps two tensors of the parameter's size, `m` and `v`.
///
/// PyTorch: `torch.optim.RAdam(params, lr, betas, eps, weight_decay, decoupled_weight_decay)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RAdam {
    /// Learning rate. 1e-3 if left out.
    pub lr: f64,
    /// Decay rates of the two running means, each at least 0 and below 1. (0.9, 0.999) if left out.
    pub betas: (f64, f64),
    /// Added to the denominator. 1e-8 if left out.
    pub eps: f64,
    /// L2 regularisation; if it is decoupled, the share of a weight that a step takes away, times `lr`. 0 if left out.
    pub weight_decay: f64,
    /// True if weight decay does not enter the gradient, as in `AdamW`. `false` if left out.
    pub decoupled_weight_decay: bool,
    /// Parameters with a learning rate, a weight decay or an `eps` of their own. None if left out.
    pub groups: &'static [Group],
}

impl RAdam {
    /// PyTorch's defaults.
    pub const DEFAULT: RAdam = RAdam {
        lr: 1e-3,
        betas: (0.9, 0.999),
        eps: 1e-8,
        weight_decay: 0.0,
        decoupled_weight_decay: false,
        groups: &[],
    };

    /// The facts about the optimizer that do not depend on the values of hyperparameters. Its corrections are `1 - beta1^t` and
    /// `r(t) * sqrt(1 - beta2^t)`, which is 0 in a step that does not divide by the root.
    pub const ROW: Row = Row {
        name: "RAdam",
        fields: &["lr", "betas", "eps", "weight_decay", "decoupled_weight_decay"],
        of_groups: &["eps"],
        states: &[State::always("exp_avg"), State::always("exp_avg_sq").not_negative()],
        corrections: Corrections::Own,
    };

    /// Returns the numbers of its rule, except the learning rate.
    pub(super) const fn values(&self) -> [Value; 5] {
        [
            Value::decay("beta1", self.betas.0),
            Value::decay("beta2", self.betas.1),
            Value::not_negative("eps", self.eps),
            Value::not_negative("weight_decay", self.weight_decay),
            Value::flag("decoupled_weight_decay", self.decoupled_weight_decay),
        ]
    }

    /// Returns the optimizer with the numbers of its rule that a group sets.
    pub(super) fn with_group(self, group: &Group) -> RAdam {
        RAdam { eps: group.eps.unwrap_or(self.eps), ..self }
    }
}

impl ElementRule<3> for RAdam {
    /// Returns `1 - beta1^t`, and `r(t) * sqrt(1 - beta2^t)` or, where a step is not divided, 0.
    fn corrections<N: Scalar>(&self, t: N) -> [N; 2] {
        let of_square = bias_correction(self.betas.1, t);
        let most = 2.0 / (1.0 - self.betas.1) - 1.0;
        let length = N::of(most) - t * 2.0 * N::power(self.betas.1, t) / of_square;
        let share = (length - 4.0) * (length - 2.0) * most / (length * ((most - 4.0) * (most - 2.0)));
        let factor = share.sqrt() * of_square.sqrt();
        [bias_correction(self.betas.0, t), N::select(N::of(5.0).less(length), factor, N::of(0.0))]
    }

    fn factors<N: Scalar>(&self, step: StepScalars<N>) -> [N; 3] {
        let [of_mean, factor] = step.corrections;
        [step.lr / of_mean, factor, step.decay(self.decoupled_weight_decay)]
    }

    #[inline(always)]
    fn update<N: Scalar>(&self, [rate, factor, decay]: [N; 3], w: &mut N, g: N, [m, v, _]: [&mut N; STATES]) {
        let g = decayed(self.decoupled_weight_decay, w, g, decay);
        average(m, self.betas.0, g);
        average_square(v, self.betas.1, g);
        let divided = *m * factor / (v.sqrt() + self.eps);
        *w = *w - rate * N::select(N::of(0.0).less(factor), divided, *m);
    }
}
