use super::Group;
use super::element::{ElementRule, STATES, Scalar, StepScalars, average, average_square, bias_correction, decayed};
use super::table::{Corrections, Row, State, Value};

/// `NAdam { lr: 2e-3 }`: Adam with Nesterov's momentum, which grows from step to step.
///
/// ```text
/// w = w * (1 - lr * weight_decay)                          (where decoupled)
/// g = gradient + weight_decay * w                          (elsewhere)
/// m = beta1 * m + (1 - beta1) * g
/// v = beta2 * v + (1 - beta2) * g^2
/// mu(t) = beta1 * (1 - 0.5 * 0.96^(t * momentum_decay))
/// p(t) = mu(1) * mu(2) * .. * mu(t)
/// d = (1 - mu(t)) / (1 - p(t)) * g + mu(t + 1) / (1 - p(t + 1)) * m
/// w = w - lr * d / (sqrt(v / (1 - beta2^t)) + eps)
/// ```
///
/// Keeps two tensors of the parameter's size, `m` and `v`. The product `p(t)` follows from the step, and is computed once a step.
///
/// PyTorch: `torch.optim.NAdam(params, lr, betas, eps, weight_decay, momentum_decay, decoupled_weight_decay)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NAdam {
    /// Learning rate. 2e-3 if left out.
    pub lr: f64,
    /// Decay rates of the two running means, each at least 0 and below 1. (0.9, 0.999) if left out.
    pub betas: (f64, f64),
    /// Added to the denominator. 1e-8 if left out.
    pub eps: f64,
    /// L2 regularisation; if it is decoupled, the share of a weight that a step takes away, times `lr`. 0 if left out.
    pub weight_decay: f64,
    /// The speed at which the momentum grows from half of `beta1` to all of it. 4e-3 if left out.
    pub momentum_decay: f64,
    /// True if weight decay does not enter the gradient, as in `AdamW`. `false` if left out.
    pub decoupled_weight_decay: bool,
    /// Parameters with a learning rate, a weight decay or an `eps` of their own. None if left out.
    pub groups: &'static [Group],
}

impl NAdam {
    /// PyTorch's defaults.
    pub const DEFAULT: NAdam = NAdam {
        lr: 2e-3,
        betas: (0.9, 0.999),
        eps: 1e-8,
        weight_decay: 0.0,
        momentum_decay: 4e-3,
        decoupled_weight_decay: false,
        groups: &[],
    };

    /// The facts about the optimizer that do not depend on the values of hyperparameters. Its corrections are `p(t)` and `1 - beta2^t`.
    pub const ROW: Row = Row {
        name: "NAdam",
        fields: &["lr", "betas", "eps", "weight_decay", "momentum_decay", "decoupled_weight_decay"],
        of_groups: &["eps"],
        states: &[State::always("exp_avg"), State::always("exp_avg_sq").not_negative()],
        corrections: Corrections::Own,
    };

    /// Returns the numbers of its rule, except the learning rate.
    pub(super) const fn values(&self) -> [Value; 6] {
        [
            Value::decay("beta1", self.betas.0),
            Value::decay("beta2", self.betas.1),
            Value::not_negative("eps", self.eps),
            Value::not_negative("weight_decay", self.weight_decay),
            Value::not_negative("momentum_decay", self.momentum_decay),
            Value::flag("decoupled_weight_decay", self.decoupled_weight_decay),
        ]
    }

    /// Returns the optimizer with the numbers of its rule that a group sets.
    pub(super) fn with_group(self, group: &Group) -> NAdam {
        NAdam { eps: group.eps.unwrap_or(self.eps), ..self }
    }
}

impl NAdam {
    /// Returns the momentum of step `t`.
    fn mu<N: Scalar>(&self, t: N) -> N {
        (N::of(1.0) - N::power(0.96, t * self.momentum_decay) * 0.5) * self.betas.0
    }

    /// Returns the product of the momenta from the first step to step `t`. It depends on the step number alone, so that a resumed training
    /// needs no further state, as with any other rule.
    fn momenta<N: Scalar>(&self, t: N) -> N {
        // A number below this changes neither a sum with 1 nor a momentum.
        let nothing = N::of(1e-18);
        let ratio = N::power(0.96, N::of(self.momentum_decay));
        let [product, _, at] = N::repeat(
            [N::of(1.0), N::of(1.0), N::of(0.0)],
            |[product, left, at]| at.less(t) & nothing.less(product) & nothing.less(left),
            |[product, left, at]| {
                let left = left * ratio;
                [product * ((N::of(1.0) - left * 0.5) * self.betas.0), left, at + 1.0]
            },
        );
        product * N::power(self.betas.0, t - at)
    }
}

impl ElementRule<4> for NAdam {
    /// Returns `p(t)` and `1 - beta2^t`.
    fn corrections<N: Scalar>(&self, t: N) -> [N; 2] {
        [self.momenta(t), bias_correction(self.betas.1, t)]
    }

    fn factors<N: Scalar>(&self, step: StepScalars<N>) -> [N; 4] {
        let [product, of_square] = step.corrections;
        let (now, next) = (self.mu(step.t), self.mu(step.t + 1.0));
        let one = N::of(1.0);
        let of_gradient = step.lr * (one - now) / (one - product);
        let of_mean = step.lr * next / (one - product * next);
        [of_gradient, of_mean, one / of_square.sqrt(), step.decay(self.decoupled_weight_decay)]
    }

    #[inline(always)]
    fn update<N: Scalar>(
        &self,
        [of_gradient, of_mean, root, decay]: [N; 4],
        w: &mut N,
        g: N,
        [m, v, _]: [&mut N; STATES],
    ) {
        let g = decayed(self.decoupled_weight_decay, w, g, decay);
        average(m, self.betas.0, g);
        average_square(v, self.betas.1, g);
        *w = *w - (of_mean * *m + of_gradient * g) / (v.sqrt() * root + self.eps);
    }
}
