//! Elementwise functions: `y = f(x)`, and `dx = dy * f'`. The derivative is computed from either `x` or `y`, whichever the function keeps.

use crate::kernels::elementwise::exponential::exp;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::program::Slot;
use gpumem_core::program::functions::{Function, Kept};
use gpumem_core::program::ops::Pointwise;
use gpumem_core::shape::Shape;
use std::f64::consts::FRAC_1_SQRT_2;

/// A use of a function, given the function itself and its slope. The slope takes the kept tensor's element.
pub(in crate::kernels) trait Use {
    type Out;
    fn apply(
        self,
        value: impl Fn(f32) -> f32 + Copy + Send + Sync + 'static,
        slope: impl Fn(f32) -> f32 + Copy + Send + Sync + 'static,
    ) -> Self::Out;
}

/// Calls `it` with a function and its slope. The slope of a function that keeps nothing is called with 0.
pub(in crate::kernels) fn with<U: Use>(pointwise: &Pointwise, it: U) -> U::Out {
    let argument = |index: usize| pointwise.arguments.get(index).copied().unwrap_or(0.0) as f32;
    match pointwise.function {
        Function::Relu => it.apply(relu, relu_slope),
        Function::Relu6 => it.apply(relu6, relu6_slope),
        Function::LeakyRelu => {
            let below = argument(0);
            let slope = move |y: f32| if y > 0.0 { 1.0 } else { below + zero(y) };
            it.apply(move |x| if x > 0.0 { x } else { below * x }, slope)
        }
        Function::Gelu => it.apply(gelu, gelu_slope),
        Function::GeluTanh => it.apply(|x| x * gate(x), gelu_tanh_slope),
        Function::Silu => it.apply(|x| x * logistic(x), silu_slope),
        Function::Exp => it.apply(f32::exp, |y| y),
        Function::Affine => {
            let (factor, shift) = (argument(0), argument(1));
            it.apply(move |x| factor * x + shift, move |_| factor)
        }
        Function::Sigmoid => it.apply(logistic, |y| y * (1.0 - y)),
        Function::Tanh => it.apply(f32::tanh, |y| 1.0 - y * y),
        Function::Hardswish => it.apply(|x| x * ((x + 3.0).clamp(0.0, 6.0) / 6.0), hardswish_slope),
        Function::Hardsigmoid => {
            it.apply(|x| (x + 3.0).clamp(0.0, 6.0) / 6.0, |y| if y > 0.0 && y < 1.0 { 1.0 / 6.0 } else { zero(y) })
        }
        Function::Elu => Elu::new(argument(0)).of_input(it),
        Function::Celu => Elu::celu(argument(0)).of_input(it),
        Function::Selu => Elu::SELU.of_input(it),
        Function::EluInPlace => Elu::new(argument(0)).of_output(it),
        Function::CeluInPlace => Elu::celu(argument(0)).of_output(it),
        Function::SeluInPlace => Elu::SELU.of_output(it),
        Function::Softplus => {
            let (beta, threshold) = (argument(0), argument(1));
            let value = move |x: f32| if beta * x > threshold { x } else { softplus(beta * x) / beta };
            it.apply(value, move |x| if beta * x > threshold { 1.0 } else { logistic(beta * x) })
        }
        Function::StepSize => it.apply(softplus, |y| -(-y).exp_m1()),
        Function::Hardtanh => {
            let (least, most) = (argument(0), argument(1));
            let value = move |x: f32| {
                if x < least {
                    least
                } else if x > most {
                    most
                } else {
                    x
                }
            };
            it.apply(value, move |y| if y > least && y < most { 1.0 } else { zero(y) })
        }
        Function::Hardshrink => {
            let width = argument(0);
            it.apply(move |x| if x.abs() <= width { 0.0 } else { x }, shrunk_slope)
        }
        Function::Softshrink => {
            let width = argument(0);
            let value = move |x: f32| if x.abs() <= width { 0.0 } else { x - width.copysign(x) };
            it.apply(value, shrunk_slope)
        }
        Function::Tanhshrink => it.apply(tanhshrink, |x| x.tanh() * x.tanh()),
        Function::Sin => it.apply(f32::sin, f32::cos),
        Function::Cos => it.apply(f32::cos, |x| -x.sin()),
        Function::Softsign => it.apply(|x| x / (1.0 + x.abs()), softsign_slope),
        Function::Mish => it.apply(|x| x * softplus(x).tanh(), mish_slope),
        Function::QuickGelu => it.apply(|x| x * logistic(QUICK * x), quick_gelu_slope),
        Function::LogSigmoid => it.apply(|x| -softplus(-x), |x| logistic(-x)),
        Function::Abs => it.apply(f32::abs, |x| {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                0.0 * x
            }
        }),
        Function::Sqrt => it.apply(f32::sqrt, |y| 0.5 / y),
        Function::Log => it.apply(f32::ln, |x| 1.0 / x),
        Function::Pow => {
            let exponent = argument(0);
            // The power is a constant, also at `x = 0`.
            let slope = move |x: f32| if exponent == 0.0 { 0.0 } else { exponent * x.powf(exponent - 1.0) };
            it.apply(move |x| x.powf(exponent), slope)
        }
    }
}

/// ELU and its variants: `factor * x` if `x` is positive, else `below * (exp(rate * x) - 1)`.
#[derive(Clone, Copy)]
struct Elu {
    factor: f32,
    below: f32,
    rate: f32,
    /// The slope at 0, `below * rate` rounded once.
    steepest: f32,
}

impl Elu {
    const SELU: Elu = Elu { factor: 1.050_701, below: 1.758_099_3, rate: 1.0, steepest: 1.758_099_3 };

    fn new(alpha: f32) -> Elu {
        Elu { factor: 1.0, below: alpha, rate: 1.0, steepest: alpha }
    }

    fn celu(alpha: f32) -> Elu {
        Elu { factor: 1.0, below: alpha, rate: 1.0 / alpha, steepest: 1.0 }
    }

    fn value(self, x: f32) -> f32 {
        if x > 0.0 { self.factor * x } else { self.below * (self.rate * x).exp_m1() }
    }

    /// Uses the function with its slope computed from the input.
    fn of_input<U: Use>(self, it: U) -> U::Out {
        let slope = move |x: f32| if x > 0.0 { self.factor } else { self.steepest * exp(self.rate * x) };
        it.apply(move |x| self.value(x), slope)
    }

    /// Uses the function with its slope computed from the output, which overwrites the input.
    fn of_output<U: Use>(self, it: U) -> U::Out {
        let slope = move |y: f32| if y > 0.0 { self.factor } else { self.rate * (y + self.below) };
        it.apply(move |x| self.value(x), slope)
    }
}

/// Returns the slope of softsign. It divides before it squares, because the square of a large number is infinite.
fn softsign_slope(x: f32) -> f32 {
    let share = 1.0 / (1.0 + x.abs());
    share * share
}

/// Returns `log(1 + exp(x))` without large intermediate values. A NaN stays NaN.
fn softplus(x: f32) -> f32 {
    let above = if x < 0.0 { 0.0 } else { x };
    above + (-x.abs()).exp().ln_1p()
}

/// Returns the slope of the shrink functions: 0 if the output is 0, else 1. A NaN stays NaN.
fn shrunk_slope(y: f32) -> f32 {
    if y != 0.0 { 1.0 + zero(y) } else { 0.0 }
}

/// Returns `x - tanh(x)`. For small `x` it uses the series, because the difference would lose all digits.
fn tanhshrink(x: f32) -> f32 {
    if x.abs() < 0.1 {
        let square = x * x;
        x * square * (1.0 / 3.0 - square * (2.0 / 15.0 - square * (17.0 / 315.0)))
    } else {
        x - x.tanh()
    }
}

fn mish_slope(x: f32) -> f32 {
    let gate = softplus(x).tanh();
    gate + x * (1.0 - gate * gate) * logistic(x)
}

const QUICK: f32 = 1.702;

#[inline(always)]
fn quick_gelu_slope(x: f32) -> f32 {
    let gate = logistic(QUICK * x);
    gate * (1.0 + QUICK * x * (1.0 - gate))
}

/// Returns `max(x, 0)`. The direction of the comparison lets a NaN through.
#[inline(always)]
pub(in crate::kernels) fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[inline(always)]
pub(in crate::kernels) fn relu_slope(y: f32) -> f32 {
    if y > 0.0 { 1.0 } else { zero(y) }
}

/// Returns 0, or NaN for a NaN.
#[inline(always)]
fn zero(y: f32) -> f32 {
    if y.is_nan() { y } else { 0.0 }
}

#[inline(always)]
pub(in crate::kernels) fn relu6(x: f32) -> f32 {
    x.clamp(0.0, 6.0)
}

#[inline(always)]
pub(in crate::kernels) fn relu6_slope(y: f32) -> f32 {
    if y > 0.0 && y < 6.0 { 1.0 } else { zero(y) }
}

/// Returns `erfc(x)` with a relative error below 1.2e-7 everywhere: `t * exp(-x^2 + p(t))` with `t = 1 / (1 + |x| / 2)`, the
/// Chebyshev fit of Press, Teukolsky, Vetterling and Flannery, "Numerical Recipes", section 6.2.
fn erfc(x: f64) -> f64 {
    const FIT: [f64; 10] = [
        0.17087277,
        -0.82215223,
        1.48851587,
        -1.13520398,
        0.27886807,
        -0.18628806,
        0.09678418,
        0.37409196,
        1.00002368,
        -1.26551223,
    ];
    let t = 1.0 / (1.0 + 0.5 * x.abs());
    let fit = FIT.iter().fold(0.0, |sum, coefficient| sum * t + coefficient);
    let tail = t * (fit - x * x).exp();
    if x >= 0.0 { tail } else { 2.0 - tail }
}

/// Returns `x * Phi(x)`, with the normal distribution function `Phi`.
fn gelu(x: f32) -> f32 {
    let x = f64::from(x);
    (0.5 * x * erfc(-x * FRAC_1_SQRT_2)) as f32
}

fn gelu_slope(x: f32) -> f32 {
    /// `1 / sqrt(2 * pi)`.
    const DENSITY: f64 = 0.398_942_280_401_432_7;
    let x = f64::from(x);
    (0.5 * erfc(-x * FRAC_1_SQRT_2) + x * DENSITY * (-0.5 * x * x).exp()) as f32
}

/// `sqrt(2 / pi)`.
const SCALE: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044_715;

/// Returns `(1 + tanh(u)) / 2` with `u = sqrt(2 / pi) * (x + 0.044715 * x^3)`. It is computed as `1 / (1 + exp(-2 u))`, which does not cancel
/// for negative `u`.
#[inline(always)]
fn gate(x: f32) -> f32 {
    logistic(2.0 * SCALE * (x + CUBIC * x * x * x))
}

#[inline(always)]
fn gelu_tanh_slope(x: f32) -> f32 {
    let gate = gate(x);
    let slope = gate * (1.0 - gate);
    // For large `x` the slope is 0 and the square is infinite.
    gate + if slope == 0.0 { 0.0 } else { x * slope * 2.0 * SCALE * (1.0 + 3.0 * CUBIC * x * x) }
}

/// Returns `1 / (1 + exp(-x))`, also if `exp(-x)` is infinite.
#[inline(always)]
pub(in crate::kernels) fn logistic(x: f32) -> f32 {
    // `exp(-|x|)` is at most 1, so a small result is a quotient of small numbers.
    let small = exp(-x.abs());
    (if x < 0.0 { small } else { 1.0 }) / (1.0 + small)
}

#[inline(always)]
fn silu_slope(x: f32) -> f32 {
    let gate = logistic(x);
    gate * (1.0 + x * (1.0 - gate))
}

/// Returns the slope of hardswish. A NaN stays NaN.
#[inline(always)]
fn hardswish_slope(x: f32) -> f32 {
    if x <= -3.0 {
        0.0
    } else if x >= 3.0 {
        1.0
    } else {
        x / 3.0 + 0.5
    }
}

/// Returns the elements of a batch of samples of this shape.
pub(in crate::kernels) fn elements(shape: Shape, operands: &Operands<'_>) -> usize {
    count(&[operands.batch(), count(shape.dims()) as u64])
}

struct Forward<'a, 'o>(usize, &'a mut Operands<'o>);

impl Use for Forward<'_, '_> {
    type Out = Bound;

    fn apply(
        self,
        value: impl Fn(f32) -> f32 + Copy + Send + Sync + 'static,
        _: impl Fn(f32) -> f32 + Copy + Send + Sync + 'static,
    ) -> Bound {
        let mut pair = self.1.pair(Slot::Input(0), Slot::Output, self.0)?;
        kernel(move |_| pair.map(false, |_, x| value(x)))
    }
}

/// Computes `y = f(x)`, in place or not.
pub(in crate::kernels) fn forward(op: &Pointwise, operands: &mut Operands<'_>) -> Bound {
    with(op, Forward(elements(op.shape, operands), operands))
}

struct Backward<'a, 'o>(usize, Option<Slot>, &'a mut Operands<'o>);

impl Use for Backward<'_, '_> {
    type Out = Bound;

    fn apply(
        self,
        _: impl Fn(f32) -> f32 + Copy + Send + Sync + 'static,
        slope: impl Fn(f32) -> f32 + Copy + Send + Sync + 'static,
    ) -> Bound {
        let (mut pair, accumulate) = self.2.gradients(0, self.0)?;
        match self.1 {
            Some(kept) => {
                let kept = self.2.source(kept, self.0)?;
                kernel(move |_| pair.zip(accumulate, kept.get(), |dy, kept| dy * slope(kept)))
            }
            None => kernel(move |_| pair.map(accumulate, |_, dy| dy * slope(0.0))),
        }
    }
}

/// Computes `dx = dy * f'`, in place or not.
pub(in crate::kernels) fn backward(op: &Pointwise, operands: &mut Operands<'_>) -> Bound {
    let kept = match op.function.row().kept {
        Kept::Input => Some(Slot::Input(0)),
        Kept::Output => Some(Slot::Output),
        Kept::Nothing => None,
    };
    with(op, Backward(elements(op.shape, operands), kept, operands))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The series `2 / sqrt(pi) * exp(-x^2) * sum of 2^n x^(2n+1) / (1 * 3 * .. * (2n+1))`, whose terms are all positive.
    fn erf_by_series(x: f64) -> f64 {
        let (mut term, mut sum) = (x, 0.0);
        for n in 0..200 {
            sum += term;
            term *= 2.0 * x * x / f64::from(2 * n + 3);
        }
        2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
    }

    #[test]
    fn the_error_function_agrees_with_its_series() {
        for step in -40..=40 {
            let x = f64::from(step) / 10.0;
            let expected = 1.0 - erf_by_series(x);
            assert!((erfc(x) - expected).abs() <= 1.3e-7 * expected.abs() + 1e-15, "{x}: {} {expected}", erfc(x));
        }
    }

    /// The value of a function.
    struct Value(f32);

    impl Use for Value {
        type Out = f32;

        fn apply(self, value: impl Fn(f32) -> f32, _: impl Fn(f32) -> f32) -> f32 {
            value(self.0)
        }
    }

    #[test]
    fn functions_have_their_known_values() {
        let value = |function, arguments: &[f64], x| {
            with(&Pointwise { function, arguments: arguments.to_vec(), shape: Shape::new(&[1]) }, Value(x))
        };
        let close = |a: f32, b: f32| assert!((a - b).abs() < 1e-6 * b.abs().max(1.0), "{a} {b}");
        close(value(Function::Gelu, &[], 1.0), 0.841_344_7);
        close(value(Function::Gelu, &[], -2.0), -0.045_500_264);
        close(value(Function::GeluTanh, &[], 1.0), 0.841_192);
        close(value(Function::Silu, &[], 1.0), 0.731_058_6);
        close(value(Function::Sigmoid, &[], -100.0), 0.0);
        close(value(Function::Silu, &[], -100.0), 0.0);
        close(value(Function::Tanh, &[], 0.5), 0.462_117_16);
        close(value(Function::Relu6, &[], 7.0), 6.0);
        close(value(Function::LeakyRelu, &[0.25], -2.0), -0.5);
        assert!(value(Function::Relu, &[], f32::NAN).is_nan(), "a NaN must not vanish");
    }

    /// The slope of a function at the tensor element that it keeps.
    struct Slope(f32);

    impl Use for Slope {
        type Out = f32;

        fn apply(self, _: impl Fn(f32) -> f32, slope: impl Fn(f32) -> f32) -> f32 {
            slope(self.0)
        }
    }

    #[test]
    fn slopes_at_the_ends() {
        let slope = |function, arguments: &[f64], kept| {
            with(&Pointwise { function, arguments: arguments.to_vec(), shape: Shape::new(&[1]) }, Slope(kept))
        };
        assert_eq!(slope(Function::Pow, &[0.0], 0.0), 0.0);
        assert_eq!(slope(Function::Pow, &[1.0], 0.0), 1.0);
        let far = slope(Function::Softsign, &[], 1e6);
        assert!((far - 0.999_998e-12).abs() < 1e-17, "{far}");
    }
}
