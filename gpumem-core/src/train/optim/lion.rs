use super::Group;
use super::element::{ElementRule, STATES, Scalar, StepScalars, average};
use super::table::{Corrections, Row, State, Value};

/// `Lion { lr: 1e-4 }`: Lion, which steps by the sign of an interpolation of gradient and momentum, with decoupled weight decay (Chen et al., 2023,
/// "Symbolic Discovery of Optimization Algorithms", program 1).
///
/// ```text
/// w = w * (1 - lr * weight_decay)
/// w = w - lr * sign(beta1 * m + (1 - beta1) * gradient)
/// m = beta2 * m + (1 - beta2) * gradient
/// ```
///
/// Keeps one tensor of the parameter's size, `m`.
///
/// PyTorch: `lion_pytorch.Lion(params, lr, betas, weight_decay)`; PyTorch itself has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// Learning rate. 1e-4 if left out.
    pub lr: f64,
    /// The share of the momentum that enters the step, and the share that is kept; each from 0 to 1. (0.9, 0.99) if left out.
    pub betas: (f64, f64),
    /// Decoupled weight decay: a step takes away this share of a weight, times `lr`. 0 if left out.
    pub weight_decay: f64,
    /// Parameters with a learning rate, a weight decay or `betas` of their own. None if left out.
    pub groups: &'static [Group],
}

impl Lion {
    /// The defaults of `lion_pytorch`.
    pub const DEFAULT: Lion = Lion { lr: 1e-4, betas: (0.9, 0.99), weight_decay: 0.0, groups: &[] };

    /// The facts about the optimizer that do not depend on the values of hyperparameters.
    pub const ROW: Row = Row {
        name: "Lion",
        fields: &["lr", "betas", "weight_decay"],
        of_groups: &["betas"],
        states: &[State::always("exp_avg")],
        corrections: Corrections::None,
    };

    /// Returns the numbers of its rule, except the learning rate.
    pub(super) const fn values(&self) -> [Value; 3] {
        [
            Value::share("beta1", self.betas.0),
            Value::share("beta2", self.betas.1),
            Value::not_negative("weight_decay", self.weight_decay),
        ]
    }

    /// Returns the optimizer with the numbers of its rule that a group sets.
    pub(super) fn with_group(self, group: &Group) -> Lion {
        Lion { betas: group.betas.unwrap_or(self.betas), ..self }
    }
}

impl ElementRule<2> for Lion {
    fn factors<N: Scalar>(&self, step: StepScalars<N>) -> [N; 2] {
        [step.lr, step.shrink()]
    }

    #[inline(always)]
    fn update<N: Scalar>(&self, [lr, shrink]: [N; 2], w: &mut N, g: N, [m, ..]: [&mut N; STATES]) {
        let mut towards = *m;
        average(&mut towards, self.betas.0, g);
        *w = *w * shrink - lr * towards.sign();
        average(m, self.betas.1, g);
    }
}
