use super::table::{Corrections, Extent, Row, State, Value};
use super::{AdamW, Group};
use crate::shape::Shape;

/// `Muon { lr: 0.02, adamw_lr: 3e-4 }`: steps of the momentum made orthogonal, for the matrices of hidden layers (Jordan et al., 2024).
/// All other parameters are trained by [`AdamW`].
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
/// where `(a, b, c)` are the `ns_coefficients`, the norm is that of all elements, and `r` is `sqrt(max(1, rows / columns))`, or with
/// `match_rms_adamw` `0.2 * sqrt(max(rows, columns))`: steps as large as AdamW's, so that both can have one rate.
///
/// A matrix of a hidden layer is the weight of a `Linear`, a convolution or a recurrent layer. A weight of more than two axes is a matrix
/// of its first axis and all others. Tables that indices are looked up in are none, nor are parameters with one axis, nor the weight
/// of the layer that makes an output of the network, whatever functions of one value come behind it. PyTorch leaves it to the user what goes to
/// which optimizer, and takes parameters of two axes alone.
///
/// Keeps for a matrix one tensor of its size, `m`, and for all other parameters AdamW's two. The update of a matrix has scratch memory:
/// twice its size and twice the square of its smaller side, which updates one after the other share. The iteration is computed in
/// `f32`; PyTorch's, in bfloat16, gives up to 2 % of a step other steps.
///
/// `set_lr` sets `lr`, and changes AdamW's rate in the same proportion.
///
/// PyTorch: `torch.optim.Muon(matrices, lr, weight_decay, momentum, nesterov, ns_coefficients, eps, ns_steps, adjust_lr_fn)` beside
/// `torch.optim.AdamW(others, lr)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Muon {
    /// Learning rate of matrices. 1e-3 if left out.
    pub lr: f64,
    /// Decoupled weight decay of matrices: a step takes away this share of a weight, times `lr`. 0.1 if left out.
    pub weight_decay: f64,
    /// Share of the momentum that is kept, from 0 to 1. 0.95 if left out.
    pub momentum: f64,
    /// Whether a step looks ahead: Nesterov's momentum. `true` if left out.
    pub nesterov: bool,
    /// Of the iteration: (3.4445, -4.775, 2.0315) if left out.
    pub ns_coefficients: (f64, f64, f64),
    /// The least that the norm is taken for. 1e-7 if left out.
    pub eps: f64,
    /// Steps of the iteration, below 100. 5 if left out.
    pub ns_steps: u64,
    /// Whether steps are as large as AdamW's. `false` if left out.
    pub match_rms_adamw: bool,
    /// What AdamW's learning rate is, in proportion to `lr`. `network!` takes the rate itself, as `adamw_lr: 3e-4`, and divides. `lr` if
    /// left out.
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

    /// What is known of it without its hyperparameters' values. Its corrections are AdamW's.
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
        states: &[State::always("momentum_buffer"), State::always("exp_avg_sq").not_negative().of(Extent::Others)],
        corrections: Corrections::Betas,
    };

    /// The square of what a step of a matrix of this shape is multiplied with, beside the learning rate.
    pub fn squared_ratio(&self, parameter: Shape) -> f64 {
        let [rows, columns] = matrix(parameter).map(|size| size as f64);
        if self.match_rms_adamw { 0.04 * rows.max(columns) } else { (rows / columns).max(1.0) }
    }

    /// The rule of all other parameters, but for what the rate is multiplied with.
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

    /// The numbers of its rule, but for the learning rate.
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
}

/// Rows and columns of the matrix that a parameter is: of its first axis and of all others.
pub fn matrix(parameter: Shape) -> [u64; 2] {
    let rows = parameter.dims().first().copied().unwrap_or(1);
    [rows, parameter.elements().unwrap_or(u64::MAX).checked_div(rows).unwrap_or(0)]
}

/// What lies in the scratch memory of the update of a matrix, one behind the other, in numbers of f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// The matrix, with no more rows than columns, and again the next one.
    pub matrix: u64,
    /// The product of the matrix with its transpose, and again the polynomial of it.
    pub square: u64,
    /// What squares add up to in each piece.
    pub pieces: u64,
    /// What the matrix is divided by.
    pub norm: u64,
}

impl Iteration {
    /// Elements of a piece.
    pub const PIECE: u64 = 1024;

    /// That of a parameter of this shape.
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

    /// Numbers of all parts.
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
