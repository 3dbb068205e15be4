use super::Group;
use super::element::Scalar;
use super::table::{Corrections, Extent, Row, State, Value};

/// `Adafactor { lr: 1e-2 }`: divides by a running root mean square of gradients, and keeps only its means over rows and columns.
///
/// ```text
/// b = t^beta2_decay
/// a = max(eps.1, rms(w)) * min(lr, 1 / sqrt(t))
/// w = w * (1 - lr * weight_decay)
/// R = R + b * (mean of g^2 over a row - R)                 (of the last two axes)
/// C = C + b * (mean of g^2 over a column - C)
/// v = R * C / max(mean of R, eps.0)
/// u = g / max(sqrt(v), eps.0)
/// w = w - a / max(1, rms(u) / d) * u
/// ```
///
/// where `rms` is the root of the mean square of all elements. A vector has no rows: `v = v + b * (g^2 - v)`.
///
/// Keeps two tensors for a parameter of two or more axes: `R` has its shape with 1 as the last dimension, and `C` its shape with 1 as the
/// last but one. For a matrix of 1000 x 1000 elements these are 2000 numbers, whereas `Adam` keeps 2000000. Keeps one tensor of its size
/// for a vector.
///
/// Its update needs scratch memory: two numbers for each 1024 elements, one for each matrix of the last two axes, and if a matrix has more
/// than 256 rows, one for each column of each 256 of them. PyTorch allocates two tensors of the parameter's size for it.
///
/// PyTorch: `torch.optim.Adafactor(params, lr, beta2_decay, eps, d, weight_decay)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adafactor {
    /// Learning rate: the most that a step changes a parameter by, in proportion to its size. 1e-2 if left out.
    pub lr: f64,
    /// The exponent, 0 or less, of the share of the gradient in the means. The share is 1 in the first step and `t^beta2_decay` in step
    /// `t`. -0.8 if left out.
    pub beta2_decay: f64,
    /// Two lower bounds. The first is that of a gradient's divisor, above 0; `None` is 2^-23, the smallest number that changes 1 in `f32`.
    /// The second is that of the size of a parameter. (None, 1e-3) if left out.
    pub eps: (Option<f64>, f64),
    /// The largest root mean square of a change before it is multiplied by the rate, 1 or more. 1 if left out.
    pub d: f64,
    /// The share of a weight that a step takes away, times `lr`. 0 if left out.
    pub weight_decay: f64,
    /// Parameters with a learning rate or a weight decay of their own. None if left out.
    pub groups: &'static [Group],
}

impl Adafactor {
    /// PyTorch's defaults.
    pub const DEFAULT: Adafactor =
        Adafactor { lr: 1e-2, beta2_decay: -0.8, eps: (None, 1e-3), d: 1.0, weight_decay: 0.0, groups: &[] };

    /// The facts about the optimizer that do not depend on the values of hyperparameters. Its corrections are `b` and `1 / sqrt(t)`.
    pub const ROW: Row = Row {
        name: "Adafactor",
        fields: &["lr", "beta2_decay", "eps", "d", "weight_decay"],
        of_groups: &[],
        states: &[
            State::always("row_var").not_negative().of(Extent::Rows).or_whole("variance"),
            State::always("col_var").not_negative().of(Extent::Columns),
        ],
        corrections: Corrections::Own,
    };

    /// Returns the lower bound of a gradient's divisor.
    pub const fn least(&self) -> f64 {
        match self.eps.0 {
            Some(eps) => eps,
            None => f32::EPSILON as f64,
        }
    }

    /// Returns the numbers of step `t` that its update needs: `t^beta2_decay` and `1 / sqrt(t)`.
    pub fn corrections<N: Scalar>(&self, t: N) -> [N; 2] {
        [t.to_the(self.beta2_decay), N::of(1.0) / t.sqrt()]
    }

    /// Returns the numbers of its rule, except the learning rate.
    pub(super) const fn values(&self) -> [Value; 5] {
        [
            Value::not_positive("beta2_decay", self.beta2_decay),
            Value::positive("eps.0", self.least()),
            Value::not_negative("eps.1", self.eps.1),
            Value::at_least_one("d", self.d),
            Value::not_negative("weight_decay", self.weight_decay),
        ]
    }

    /// Returns the optimizer itself: no number of its rule may differ between groups.
    pub(super) fn with_group(self, _group: &Group) -> Adafactor {
        self
    }
}
