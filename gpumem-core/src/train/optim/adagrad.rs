use super::Group;
use super::element::{ElementRule, STATES, Scalar, StepScalars};
use super::table::{Corrections, Row, State, Value};

/// `Adagrad { lr: 1e-2 }`: divides by the root of the sum of all squared gradients.
///
/// ```text
/// g = gradient + weight_decay * w
/// s = s + g^2                                      (before the first step initial_accumulator_value)
/// w = w - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)
/// ```
///
/// Keeps one tensor of the parameter's size, `s`.
///
/// PyTorch: `torch.optim.Adagrad(params, lr, lr_decay, weight_decay, initial_accumulator_value, eps)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adagrad {
    /// Learning rate. 1e-2 if left out.
    pub lr: f64,
    /// The decay of the learning rate: step `t` divides the rate by `1 + (t - 1) * lr_decay`. 0 if left out.
    pub lr_decay: f64,
    /// L2 regularisation. 0 if left out.
    pub weight_decay: f64,
    /// The first value of the sum of squares. 0 if left out.
    pub initial_accumulator_value: f64,
    /// Added to the denominator. 1e-10 if left out.
    pub eps: f64,
    /// Parameters with a learning rate, a weight decay or an `eps` of their own. None if left out.
    pub groups: &'static [Group],
}

impl Adagrad {
    /// PyTorch's defaults.
    pub const DEFAULT: Adagrad =
        Adagrad { lr: 1e-2, lr_decay: 0.0, weight_decay: 0.0, initial_accumulator_value: 0.0, eps: 1e-10, groups: &[] };

    /// The facts about the optimizer that do not depend on the values of hyperparameters. Its correction is the divisor of the rate.
    pub const ROW: Row = Row {
        name: "Adagrad",
        fields: &["lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"],
        of_groups: &["eps"],
        states: &[State::always("sum").not_negative().beginning_with("initial_accumulator_value")],
        corrections: Corrections::Own,
    };

    /// Returns the numbers of its rule, except the learning rate.
    pub(super) const fn values(&self) -> [Value; 4] {
        [
            Value::not_negative("lr_decay", self.lr_decay),
            Value::not_negative("weight_decay", self.weight_decay),
            Value::not_negative("initial_accumulator_value", self.initial_accumulator_value),
            Value::not_negative("eps", self.eps),
        ]
    }

    /// Returns the optimizer with the numbers of its rule that a group sets.
    pub(super) fn with_group(self, group: &Group) -> Adagrad {
        Adagrad { eps: group.eps.unwrap_or(self.eps), ..self }
    }
}

impl ElementRule<2> for Adagrad {
    /// Returns the divisor of the learning rate. The second number is not used.
    fn corrections<N: Scalar>(&self, t: N) -> [N; 2] {
        [(t - 1.0) * self.lr_decay + 1.0, N::of(0.0)]
    }

    fn factors<N: Scalar>(&self, step: StepScalars<N>) -> [N; 2] {
        [step.lr / step.corrections[0], step.weight_decay]
    }

    #[inline(always)]
    fn update<N: Scalar>(&self, [rate, decay]: [N; 2], w: &mut N, g: N, [sum, ..]: [&mut N; STATES]) {
        let g = g + *w * decay;
        *sum = *sum + g * g;
        *w = *w - rate * g / (sum.sqrt() + self.eps);
    }
}
