use super::Group;
use super::element::{ElementRule, STATES, Scalar, StepScalars};
use super::table::{Corrections, Row, State, Value};

/// `Sgd { lr: 0.1, momentum: 0.9 }`: stochastic gradient descent with optional momentum.
///
/// ```text
/// g = gradient + weight_decay * w
/// v = momentum * v + (1 - dampening) * g     (v = g in the first step)
/// w = w - lr * (nesterov ? g + momentum * v : v)
/// ```
///
/// Keeps one tensor of the parameter's size when `momentum` is not 0, else nothing.
///
/// PyTorch: `torch.optim.SGD(params, lr, momentum, dampening, weight_decay, nesterov)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate. 1e-3 if left out.
    pub lr: f64,
    /// Share of the previous step's velocity that is kept, from 0 to 1. 0 if left out: no velocity, and no memory for it.
    pub momentum: f64,
    /// Share of the gradient that does not enter the velocity. 0 if left out.
    pub dampening: f64,
    /// L2 regularisation. 0 if left out.
    pub weight_decay: f64,
    /// True if momentum is Nesterov's, which needs a `momentum` and no `dampening`. `false` if left out.
    pub nesterov: bool,
    /// Parameters with a learning rate, a weight decay or a `momentum` of their own. None if left out.
    pub groups: &'static [Group],
}

impl Sgd {
    /// PyTorch's defaults.
    pub const DEFAULT: Sgd =
        Sgd { lr: 1e-3, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false, groups: &[] };

    /// The facts about the optimizer that do not depend on the values of hyperparameters.
    pub const ROW: Row = Row {
        name: "Sgd",
        fields: &["lr", "momentum", "dampening", "weight_decay", "nesterov"],
        of_groups: &["momentum"],
        states: &[State::unless_zero("momentum_buffer", "momentum")],
        corrections: Corrections::None,
    };

    /// Returns the numbers of its rule, except the learning rate.
    pub(super) const fn values(&self) -> [Value; 4] {
        let looks_ahead = self.momentum > 0.0 && self.dampening == 0.0;
        [
            Value::share("momentum", self.momentum),
            Value::finite("dampening", self.dampening),
            Value::not_negative("weight_decay", self.weight_decay),
            Value::flag("nesterov", self.nesterov).only_if(looks_ahead, "needs a momentum and no dampening"),
        ]
    }

    /// Returns the optimizer with the numbers of its rule that a group sets.
    pub(super) fn with_group(self, group: &Group) -> Sgd {
        Sgd { momentum: group.momentum.unwrap_or(self.momentum), ..self }
    }
}

impl ElementRule<4> for Sgd {
    fn factors<N: Scalar>(&self, step: StepScalars<N>) -> [N; 4] {
        let kept = N::select(step.is_first, N::of(0.0), N::of(self.momentum));
        let added = N::select(step.is_first, N::of(1.0), N::of(1.0 - self.dampening));
        [step.lr, step.weight_decay, kept, added]
    }

    #[inline(always)]
    fn update<N: Scalar>(&self, [lr, decay, kept, added]: [N; 4], w: &mut N, g: N, [v, ..]: [&mut N; STATES]) {
        let g = g + *w * decay;
        if self.momentum == 0.0 {
            *w = *w - lr * g;
            return;
        }
        *v = *v * kept + g * added;
        *w = *w - lr * if self.nesterov { g + *v * self.momentum } else { *v };
    }
}
