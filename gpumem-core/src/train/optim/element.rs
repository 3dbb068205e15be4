//! Rules that update each element by itself, written once for all backends.
//!
//! A rule is a generic function of its numbers. The CPU backend compiles it with `f64` for the numbers of a step and `f32` for those of an
//! element. The CUDA backend calls it once with symbols that note what is done with them, and a kernel gets the notes as its text.

use core::ops::{Add, BitAnd, Div, Mul, Sub};

/// The most states of an element that a rule may have.
pub const STATES: usize = 3;

/// A number of a rule: a float of a backend, or a symbol for one.
pub trait Scalar:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Add<f64, Output = Self>
    + Sub<f64, Output = Self>
    + Mul<f64, Output = Self>
{
    /// The result of a comparison.
    type Truth: Copy + BitAnd<Output = Self::Truth>;

    /// Returns a constant, rounded to the precision of these numbers.
    fn of(value: f64) -> Self;

    /// Returns the square root.
    fn sqrt(self) -> Self;

    /// Returns the distance from 0.
    fn abs(self) -> Self;

    /// Returns 1 for a positive number, -1 for a negative one, and 0 for 0. NaN stays NaN.
    fn sign(self) -> Self;

    /// Returns the larger number. If one is NaN, returns the other.
    fn max(self, other: Self) -> Self;

    /// Returns a constant to the power of `exponent`.
    fn power(base: f64, exponent: Self) -> Self;

    /// Returns the number to the power of a constant.
    fn to_the(self, exponent: f64) -> Self;

    /// True if the number is below `other`.
    fn less(self, other: Self) -> Self::Truth;

    /// Returns `then` if the condition is true, else `otherwise`.
    fn select(condition: Self::Truth, then: Self, otherwise: Self) -> Self;

    /// Replaces `numbers` by `next` of them as long as `goes_on` is true of them, and returns the last ones.
    fn repeat<const COUNT: usize>(
        numbers: [Self; COUNT],
        goes_on: impl Fn([Self; COUNT]) -> Self::Truth,
        next: impl Fn([Self; COUNT]) -> [Self; COUNT],
    ) -> [Self; COUNT];
}

/// The numbers of one training step that a rule may use.
#[derive(Clone, Copy, Debug)]
pub struct StepScalars<N: Scalar> {
    /// The learning rate of the parameter in this step.
    pub lr: N,
    /// The weight decay of the parameter.
    pub weight_decay: N,
    /// The two numbers of [`Corrections`](super::Corrections).
    pub corrections: [N; 2],
    /// The number of the step, counted from 1.
    pub t: N,
    /// True in the first step.
    pub is_first: N::Truth,
}

impl<N: Scalar> StepScalars<N> {
    /// Returns the factor of weights for decoupled weight decay.
    pub fn shrink(&self) -> N {
        N::of(1.0) - self.lr * self.weight_decay
    }

    /// Returns the last argument of [`decayed`].
    pub(super) fn decay(&self, is_decoupled: bool) -> N {
        if is_decoupled { self.shrink() } else { self.weight_decay }
    }
}

/// Applies weight decay to a weight, or adds it to the gradient. Returns the gradient.
#[inline(always)]
pub(super) fn decayed<N: Scalar>(is_decoupled: bool, w: &mut N, g: N, decay: N) -> N {
    if is_decoupled {
        *w = *w * decay;
        return g;
    }
    g + *w * decay
}

/// Returns `1 - beta^t`, the share of a running mean of `t` steps that is not its initial 0.
pub(super) fn bias_correction<N: Scalar>(beta: f64, t: N) -> N {
    N::of(1.0) - N::power(beta, t)
}

/// Moves a running mean to `share * mean + (1 - share) * new`.
#[inline(always)]
pub(super) fn average<N: Scalar>(mean: &mut N, share: f64, new: N) {
    *mean = *mean * share + new * (1.0 - share);
}

/// Moves a running mean of squares to `share * mean + (1 - share) * g^2`.
#[inline(always)]
pub(super) fn average_square<N: Scalar>(mean: &mut N, share: f64, g: N) {
    *mean = *mean * share + g * (1.0 - share) * g;
}

/// An optimizer that updates each element by itself. Hyperparameters are constants of the rule, except the learning rate and the weight decay.
pub trait ElementRule<const FACTORS: usize>: Copy + Send + Sync {
    /// Returns the numbers of step `t` for [`Corrections::Own`](super::Corrections::Own). They are computed once a step, in double precision.
    fn corrections<N: Scalar>(&self, t: N) -> [N; 2] {
        [t; 2]
    }

    /// Returns numbers that are the same for all elements of a parameter. They are computed once in a step.
    fn factors<N: Scalar>(&self, step: StepScalars<N>) -> [N; FACTORS];

    /// Updates a weight and its states from its gradient. The states are in the order of [`Row::states`](super::Row). One that is not kept is
    /// 0, and what is written to it is lost.
    fn update<N: Scalar>(&self, factors: [N; FACTORS], w: &mut N, g: N, states: [&mut N; STATES]);
}

/// A use of the rule of an optimizer, whichever it is.
pub trait RuleVisitor {
    /// The result.
    type Output;

    /// Uses the rule.
    fn visit<const FACTORS: usize>(self, rule: impl ElementRule<FACTORS>) -> Self::Output;
}
