use super::table::{Corrections, Extent, Row, State, Value};
use super::{AdamW, Group};
use crate::shape::Shape;

/// `Muon { lr: 0.02, adamw_lr: 3e-4 }`: makes the momentum of each matrix of a hidden layer orthogonal before its step (Jordan et al.,
/// 2024). All other parameters are trained by [`AdamW`].
///
/// ```text
/// m = momentum * m + (1 - momentum) * gradient
/// u = (1 - momentum) * gradient + momentum * m     with nesterov, else m
/// X = u / max(norm of u, eps)                      transposed, if it has more rows than columns
/// ns_steps times: G = X X^T;  X = a * X + (b * G + c * G G) X
/// w = w * (1 - lr * weight_decay)
/// w = w - lr * r * X                               transposed back
/// ```
///
/// where `(a, b, c)` are the `ns_coefficients`, the norm is that of all elements, and `r` is `sqrt(max(1, rows / columns))`. With
/// `match_rms_adamw`, `r` is `0.2 * sqrt(max(rows, columns))`: steps are then as large as AdamW's, so that both can have one rate.
///
/// A matrix of a hidden layer is the weight of a `Linear`, a convolution or a recurrent layer. A weight of more than two axes is a matrix
/// of its first axis and all others. These are none: tables of embeddings, parameters with one axis, and the weight of the layer that makes
/// an output of the network, even if functions of one value follow it. In PyTorch the user decides which parameters go to which optimizer,
/// and Muon takes parameters of two axes alone.
///
/// Keeps one tensor of its size, `m`, for a matrix, and AdamW's two for all other parameters. The update of a matrix needs scratch memory:
/// twice its size and twice the square of its smaller side, which updates one after the other share. The iteration is computed in `f32`.
/// PyTorch computes it in bfloat16, whose steps differ by up to 2 %.
///
/// `set_lr` sets `lr`, and changes AdamW's rate in the same proportion.
///
/// PyTorch: `torch.optim.Muon(matrices, lr, weight_decay, momentum, nesterov, ns_coefficients, eps, ns_steps, adjust_lr_fn)` together with
/// `torch.optim.AdamW(others, lr)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Muon {
    /// Learning rate of matrices. 1e-3 if left out.
    pub lr: f64,
    /// Decoupled weight decay of matrices: a step takes away this share of a weight, times `lr`. 0.1 if left out.
    pub weight_decay: f64,
    /// Share of the momentum that is kept, from 0 to 1. 0.95 if left out.
    pub momentum: f64,
    /// True if a step looks ahead: Nesterov's momentum. `true` if left out.
    pub nesterov: bool,
    /// The coefficients of the Newton-Schulz iteration. (3.4445, -4.775, 2.0315) if left out.
    pub ns_coefficients: (f64, f64, f64),
    /// The lower bound of the norm. 1e-7 if left out.
    pub eps: f64,
    /// Iterations in one step of training, below 100. 5 if left out.
    pub ns_steps: u64,
    /// True if steps are as large as AdamW's. `false` if left out.
    pub match_rms_adamw: bool,
    /// AdamW's learning rate as a multiple of `lr`. `network!` takes the rate itself, as `adamw_lr: 3e-4`, and divides. 1, the rate `lr`,
    /// if left out.
    pub adamw_lr_factor: f64,
    /// AdamW's `betas`.
    pub adamw_betas: (f64, f64),
    /// AdamW's `eps`.
    pub adamw_eps: f64,
    /// AdamW's `weight_decay`.
    pub adamw_weight_decay: f64,
    /// Parameters with a learning rate or a weight decay of their own, matrices or others. None if left out.
    pub groups: &'static [Group],
}

impl Muon {
    /// PyTorch's defaults, of both optimizers.
    pub const DEFAULT: Muon = Muon {
        lr: 1e-3,
        weight_decay: 0.1,
        momentum: 0.95,
        nesterov: true,
        ns_coefficients: (3.4445, -4.775, 2.0315),
        eps: 1e-7,
        ns_steps: 5,
        match_rms_adamw: false,
        adamw_lr_factor: 1.0,
        adamw_betas: AdamW::DEFAULT.betas,
        adamw_eps: AdamW::DEFAULT.eps,
        adamw_weight_decay: AdamW::DEFAULT.weight_decay,
        groups: &[],
    };

    /// The facts about the optimizer that do not depend on the values of hyperparameters. Its corrections are AdamW's.
    pub const ROW: Row = Row {
        name: "Muon",
        fields: &[
            "lr",
            "weight_decay",
            "momentum",
            "nesterov",
            "ns_coefficients",
            "eps",
            "ns_steps",
            "match_rms_adamw",
            "adamw_lr",
            "adamw_betas",
            "adamw_eps",
            "adamw_weight_decay",
        ],
        of_groups: &[],
        states: &[State::always("momentum_buffer"), State::always("exp_avg_sq").not_negative().of(Extent::Others)],
        corrections: Corrections::Betas,
    };

    /// Returns the square of `r`, a further factor of the step for a matrix of this shape.
    pub fn squared_ratio(&self, parameter: Shape) -> f64 {
        let [rows, columns] = matrix(parameter).map(|size| size as f64);
        if self.match_rms_adamw { 0.04 * rows.max(columns) } else { (rows / columns).max(1.0) }
    }

    /// Returns the rule of all other parameters, without the factor of their rate.
    pub(super) const fn adamw(&self) -> AdamW {
        AdamW {
            lr: self.lr,
            betas: self.adamw_betas,
            eps: self.adamw_eps,
            weight_decay: self.adamw_weight_decay,
            groups: self.groups,
            amsgrad: false,
        }
    }

    /// Returns the numbers of its rule, except the learning rate.
    pub(super) const fn values(&self) -> [Value; 14] {
        let (a, b, c) = self.ns_coefficients;
        let steps = Value::not_negative("ns_steps", self.ns_steps as f64);
        [
            Value::not_negative("weight_decay", self.weight_decay),
            Value::share("momentum", self.momentum),
            Value::flag("nesterov", self.nesterov),
            Value::finite("ns_coefficients.0", a),
            Value::finite("ns_coefficients.1", b),
            Value::finite("ns_coefficients.2", c),
            Value::not_negative("eps", self.eps),
            steps.only_if(self.ns_steps < 100, "must be below 100"),
            Value::flag("match_rms_adamw", self.match_rms_adamw),
            Value::not_negative("adamw_lr", self.adamw_lr_factor),
            Value::decay("adamw_beta1", self.adamw_betas.0),
            Value::decay("adamw_beta2", self.adamw_betas.1),
            Value::not_negative("adamw_eps", self.adamw_eps),
            Value::not_negative("adamw_weight_decay", self.adamw_weight_decay),
        ]
    }

    /// Returns the optimizer itself: no number of its rule may differ between groups.
    pub(super) fn with_group(self, _group: &Group) -> Muon {
        self
    }
}

/// Returns the rows and columns of a parameter as a matrix: its first axis, and the product of all others.
pub fn matrix(parameter: Shape) -> [u64; 2] {
    let rows = parameter.dims().first().copied().unwrap_or(1);
    [rows, parameter.elements().unwrap_or(u64::MAX).checked_div(rows).unwrap_or(0)]
}

/// The parts of the scratch memory of a matrix's update, one after the other, in elements of f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// The matrix, with no more rows than columns. There are two: one is read, the next one is written.
    pub matrix: u64,
    /// The product of the matrix with its transpose. There are two: the second is the polynomial of the first.
    pub square: u64,
    /// The sums of squares, one for each piece.
    pub pieces: u64,
    /// The divisor of the matrix.
    pub norm: u64,
}

impl Iteration {
    /// The number of elements of a piece.
    pub const PIECE: u64 = 1024;

    /// Returns the scratch memory for a parameter of this shape.
    pub fn new(parameter: Shape) -> Iteration {
        let [rows, columns] = matrix(parameter);
        let (side, elements) = (rows.min(columns), rows.saturating_mul(columns));
        Iteration {
            matrix: elements,
            square: side.saturating_mul(side),
            pieces: elements.div_ceil(Iteration::PIECE),
            norm: 1,
        }
    }

    /// Returns the elements of all parts together.
    pub fn all(self) -> u64 {
        let twice = self.matrix.saturating_add(self.square).saturating_mul(2);
        twice.saturating_add(self.pieces).saturating_add(self.norm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_the_first_axis_and_all_others() {
        for (dims, expected) in [(&[5, 3][..], [5, 3]), (&[8, 3, 2, 4], [8, 24]), (&[7], [7, 1]), (&[], [1, 1])] {
            assert_eq!(matrix(Shape::new(dims)), expected);
        }
        let Iteration { matrix, square, pieces, norm } = Iteration::new(Shape::new(&[40, 10, 3]));
        assert_eq!([matrix, square, pieces, norm], [1200, 900, 2, 1]);
        assert_eq!(Iteration::new(Shape::new(&[40, 10, 3])).all(), 4203);
        assert_eq!(Iteration::new(Shape::new(&[u64::MAX, 2])).all(), u64::MAX);
    }

    #[test]
    fn steps_are_as_large_as_pytorchs() {
        let squared = |muon: Muon, dims: &[u64]| muon.squared_ratio(Shape::new(dims));
        assert_eq!([squared(Muon::DEFAULT, &[64, 16]), squared(Muon::DEFAULT, &[16, 64])], [4.0, 1.0]);
        let matched = Muon { match_rms_adamw: true, ..Muon::DEFAULT };
        assert_eq!([squared(matched, &[100, 16]), squared(matched, &[16, 4, 5, 5])], [4.0, 4.0]);
    }
}
