use super::Group;
use super::element::{ElementRule, STATES, Scalar, StepScalars, average, average_square};
use super::table::{Corrections, Row, State, Value};

/// `RmsProp { lr: 1e-2 }`: divides by a running root mean square of the gradient.
///
/// ```text
/// g = gradient + weight_decay * w
/// v = alpha * v + (1 - alpha) * g^2
/// m = alpha * m + (1 - alpha) * g                          (where centered, else m = 0)
/// b = momentum * b + g / (sqrt(v - m^2) + eps)
/// w = w - lr * b
/// ```
///
/// Rounding may bring `v - m^2` below 0 if a gradient hardly changes. It then counts as 0, whereas PyTorch's root is NaN.
///
/// Keeps one tensor of the parameter's size, `v`; another one, `b`, if `momentum` is not 0, and `m` if it is `centered`.
///
/// PyTorch: `torch.optim.RMSprop(params, lr, alpha, eps, weight_decay, momentum, centered)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    /// Learning rate. 1e-2 if left out.
    pub lr: f64,
    /// Share of the mean square that is kept, 0 or more. 0.99 if left out.
    pub alpha: f64,
    /// Added to the denominator. 1e-8 if left out.
    pub eps: f64,
    /// L2 regularisation. 0 if left out.
    pub weight_decay: f64,
    /// Share of the previous step that is kept, 0 or more. 0 if left out: no memory for it.
    pub momentum: f64,
    /// True if the square of the gradient's running mean is subtracted, so that a step divides by a standard deviation. `false` if left
    /// out: no memory for it.
    pub centered: bool,
    /// Parameters with a learning rate, a weight decay, an `eps` or a `momentum` of their own. None if left out.
    pub groups: &'static [Group],
}

impl RmsProp {
    /// PyTorch's defaults.
    pub const DEFAULT: RmsProp =
        RmsProp { lr: 1e-2, alpha: 0.99, eps: 1e-8, weight_decay: 0.0, momentum: 0.0, centered: false, groups: &[] };

    /// The facts about the optimizer that do not depend on the values of hyperparameters.
    pub const ROW: Row = Row {
        name: "RmsProp",
        fields: &["lr", "alpha", "eps", "weight_decay", "momentum", "centered"],
        of_groups: &["eps", "momentum"],
        states: &[
            State::always("square_avg").not_negative(),
            State::unless_zero("momentum_buffer", "momentum"),
            State::unless_zero("grad_avg", "centered"),
        ],
        corrections: Corrections::None,
    };

    /// Returns the numbers of its rule, except the learning rate.
    pub(super) const fn values(&self) -> [Value; 5] {
        [
            Value::share("alpha", self.alpha),
            Value::not_negative("eps", self.eps),
            Value::not_negative("weight_decay", self.weight_decay),
            Value::share("momentum", self.momentum),
            Value::flag("centered", self.centered),
        ]
    }

    /// Returns the optimizer with the numbers of its rule that a group sets.
    pub(super) fn with_group(self, group: &Group) -> RmsProp {
        RmsProp { eps: group.eps.unwrap_or(self.eps), momentum: group.momentum.unwrap_or(self.momentum), ..self }
    }
}

impl ElementRule<2> for RmsProp {
    fn factors<N: Scalar>(&self, step: StepScalars<N>) -> [N; 2] {
        [step.lr, step.weight_decay]
    }

    #[inline(always)]
    fn update<N: Scalar>(&self, [lr, decay]: [N; 2], w: &mut N, g: N, [v, buffer, mean]: [&mut N; STATES]) {
        let g = g + *w * decay;
        average_square(v, self.alpha, g);
        let mut variance = *v;
        if self.centered {
            average(mean, self.alpha, g);
            // Only rounding makes it negative.
            variance = (*v - *mean * *mean).max(N::of(0.0));
        }
        let mut towards = g / (variance.sqrt() + self.eps);
        if self.momentum != 0.0 {
            *buffer = *buffer * self.momentum + towards;
            towards = *buffer;
        }
        *w = *w - lr * towards;
    }
}
