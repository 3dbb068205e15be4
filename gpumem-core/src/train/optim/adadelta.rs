use super::Group;
use super::element::{ElementRule, STATES, Scalar, StepScalars, average_square};
use super::table::{Corrections, Row, State, Value};

/// `Adadelta`: scales a gradient by the ratio of the root mean squares of earlier steps and gradients.
///
/// ```text
/// g = gradient + weight_decay * w
/// v = rho * v + (1 - rho) * g^2
/// d = sqrt(u + eps) / sqrt(v + eps) * g
/// u = rho * u + (1 - rho) * d^2
/// w = w - lr * d
/// ```
///
/// Keeps two tensors of the parameter's size, `v` and `u`.
///
/// PyTorch: `torch.optim.Adadelta(params, lr, rho, eps, weight_decay)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adadelta {
    /// The learning rate: the factor of a step. 1 if left out.
    pub lr: f64,
    /// Share of the two mean squares that is kept, from 0 to 1. 0.9 if left out.
    pub rho: f64,
    /// Added to both mean squares. 1e-6 if left out.
    pub eps: f64,
    /// L2 regularisation. 0 if left out.
    pub weight_decay: f64,
    /// Parameters with a learning rate, a weight decay or an `eps` of their own. None if left out.
    pub groups: &'static [Group],
}

impl Adadelta {
    /// PyTorch's defaults.
    pub const DEFAULT: Adadelta = Adadelta { lr: 1.0, rho: 0.9, eps: 1e-6, weight_decay: 0.0, groups: &[] };

    /// The facts about the optimizer that do not depend on the values of hyperparameters.
    pub const ROW: Row = Row {
        name: "Adadelta",
        fields: &["lr", "rho", "eps", "weight_decay"],
        of_groups: &["eps"],
        states: &[State::always("square_avg").not_negative(), State::always("acc_delta").not_negative()],
        corrections: Corrections::None,
    };

    /// Returns the numbers of its rule, except the learning rate.
    pub(super) const fn values(&self) -> [Value; 3] {
        [
            Value::share("rho", self.rho),
            Value::not_negative("eps", self.eps),
            Value::not_negative("weight_decay", self.weight_decay),
        ]
    }

    /// Returns the optimizer with the numbers of its rule that a group sets.
    pub(super) fn with_group(self, group: &Group) -> Adadelta {
        Adadelta { eps: group.eps.unwrap_or(self.eps), ..self }
    }
}

impl ElementRule<2> for Adadelta {
    fn factors<N: Scalar>(&self, step: StepScalars<N>) -> [N; 2] {
        [step.lr, step.weight_decay]
    }

    #[inline(always)]
    fn update<N: Scalar>(&self, [lr, decay]: [N; 2], w: &mut N, g: N, [v, u, _]: [&mut N; STATES]) {
        let g = g + *w * decay;
        average_square(v, self.rho, g);
        let d = (*u + self.eps).sqrt() / (*v + self.eps).sqrt() * g;
        average_square(u, self.rho, d);
        *w = *w - lr * d;
    }
}
