use super::Group;
use super::element::{ElementRule, STATES, Scalar, StepScalars, average, average_square};
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
    /// Parameters with a learning rate, a weight decay, `betas` or an `eps` of their own. None if left out.
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
        of_groups: &["betas", "eps"],
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

    /// Returns the optimizer with the numbers of its rule that a group sets.
    pub(super) fn with_group(self, group: &Group) -> Adam {
        Adam { betas: group.betas.unwrap_or(self.betas), eps: group.eps.unwrap_or(self.eps), ..self }
    }
}

impl Adam {
    /// Returns the factor of the momentum, and that of the root of the mean square.
    pub(super) fn corrected<N: Scalar>(step: &StepScalars<N>) -> [N; 2] {
        let [of_mean, of_square] = step.corrections;
        [step.lr / of_mean, N::of(1.0) / of_square.sqrt()]
    }

    /// Moves the means towards a gradient, and returns the step away from the weight: `rate` times `m` over the root of the mean square.
    #[inline(always)]
    pub(super) fn step<N: Scalar>(&self, [rate, root]: [N; 2], g: N, [m, v, largest]: [&mut N; STATES]) -> N {
        average(m, self.betas.0, g);
        average_square(v, self.betas.1, g);
        let mut square = *v;
        if self.amsgrad {
            *largest = largest.max(*v);
            square = *largest;
        }
        rate * *m / (square.sqrt() * root + self.eps)
    }
}

impl ElementRule<3> for Adam {
    fn factors<N: Scalar>(&self, step: StepScalars<N>) -> [N; 3] {
        let [rate, root] = Adam::corrected(&step);
        [rate, root, step.weight_decay]
    }

    #[inline(always)]
    fn update<N: Scalar>(&self, [rate, root, decay]: [N; 3], w: &mut N, g: N, states: [&mut N; STATES]) {
        *w = *w - self.step([rate, root], g + *w * decay, states);
    }
}
