//! Functions of one number, applied to every element: `y = f(x)`, and `dx = dy * f'`, where the derivative comes from
//! whichever of `x` and `y` the layer keeps.

use super::exponential::exp;
use super::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::layers;
use gpumem_core::program::Slot;
use gpumem_core::shape::Shape;
use std::f64::consts::FRAC_1_SQRT_2;

/// A function of one number.
pub(super) trait Function: Copy + Send + Sync + 'static {
    /// What the backward pass reads: `Input(0)` or `Output`.
    const KEPT: Slot;
    /// Dimensions of a sample.
    fn shape(&self) -> Shape;
    /// The function.
    fn value(&self, x: f32) -> f32;
    /// Its derivative, from what is kept.
    fn slope(&self, kept: f32) -> f32;
}

/// `max(x, 0)`.
#[derive(Clone, Copy)]
pub(super) struct Relu(pub(super) Shape);

impl Function for Relu {
    const KEPT: Slot = Slot::Output;
    fn shape(&self) -> Shape {
        self.0
    }
    fn value(&self, x: f32) -> f32 {
        // Comparing this way round lets a NaN through.
        if x < 0.0 { 0.0 } else { x }
    }
    fn slope(&self, y: f32) -> f32 {
        if y > 0.0 { 1.0 } else { 0.0 * y }
    }
}

/// `min(max(x, 0), 6)`.
#[derive(Clone, Copy)]
pub(super) struct Relu6(pub(super) Shape);

impl Function for Relu6 {
    const KEPT: Slot = Slot::Output;
    fn shape(&self) -> Shape {
        self.0
    }
    fn value(&self, x: f32) -> f32 {
        x.clamp(0.0, 6.0)
    }
    fn slope(&self, y: f32) -> f32 {
        if y > 0.0 && y < 6.0 { 1.0 } else { 0.0 * y }
    }
}

/// `x` where it is positive, else `slope * x`.
#[derive(Clone, Copy)]
pub(super) struct LeakyRelu(Shape, f32);

impl LeakyRelu {
    pub(super) fn new(layer: &layers::LeakyRelu) -> LeakyRelu {
        LeakyRelu(layer.shape, layer.negative_slope as f32)
    }
}

impl Function for LeakyRelu {
    const KEPT: Slot = Slot::Output;
    fn shape(&self) -> Shape {
        self.0
    }
    fn value(&self, x: f32) -> f32 {
        if x > 0.0 { x } else { self.1 * x }
    }
    fn slope(&self, y: f32) -> f32 {
        if y > 0.0 { 1.0 } else { self.1 + 0.0 * y }
    }
}

/// `x * Phi(x)`, with the normal distribution function `Phi`.
#[derive(Clone, Copy)]
pub(super) struct Gelu(pub(super) Shape);

/// `erfc(x)` with a relative error below 1.2e-7 everywhere: `t * exp(-x^2 + p(t))` with `t = 1 / (1 + |x| / 2)`, the
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

impl Function for Gelu {
    const KEPT: Slot = Slot::Input(0);
    fn shape(&self) -> Shape {
        self.0
    }
    fn value(&self, x: f32) -> f32 {
        let x = f64::from(x);
        (0.5 * x * erfc(-x * FRAC_1_SQRT_2)) as f32
    }
    fn slope(&self, x: f32) -> f32 {
        /// `1 / sqrt(2 * pi)`.
        const DENSITY: f64 = 0.398_942_280_401_432_7;
        let x = f64::from(x);
        (0.5 * erfc(-x * FRAC_1_SQRT_2) + x * DENSITY * (-0.5 * x * x).exp()) as f32
    }
}

/// `0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`.
#[derive(Clone, Copy)]
pub(super) struct GeluTanh(pub(super) Shape);

impl GeluTanh {
    /// `sqrt(2 / pi)`.
    const SCALE: f32 = 0.797_884_6;
    const CUBIC: f32 = 0.044_715;

    /// `(1 + tanh(u)) / 2` as `1 / (1 + exp(-2 u))`, which does not cancel for negative `u`.
    fn gate(x: f32) -> f32 {
        logistic(2.0 * Self::SCALE * (x + Self::CUBIC * x * x * x))
    }
}

impl Function for GeluTanh {
    const KEPT: Slot = Slot::Input(0);
    fn shape(&self) -> Shape {
        self.0
    }
    fn value(&self, x: f32) -> f32 {
        x * Self::gate(x)
    }
    fn slope(&self, x: f32) -> f32 {
        let gate = Self::gate(x);
        gate + x * gate * (1.0 - gate) * 2.0 * Self::SCALE * (1.0 + 3.0 * Self::CUBIC * x * x)
    }
}

/// `1 / (1 + exp(-x))`.
fn logistic(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x / (1 + exp(-x))`.
#[derive(Clone, Copy)]
pub(super) struct Silu(pub(super) Shape);

impl Function for Silu {
    const KEPT: Slot = Slot::Input(0);
    fn shape(&self) -> Shape {
        self.0
    }
    fn value(&self, x: f32) -> f32 {
        x * logistic(x)
    }
    fn slope(&self, x: f32) -> f32 {
        let gate = logistic(x);
        gate * (1.0 + x * (1.0 - gate))
    }
}

/// `1 / (1 + exp(-x))`.
#[derive(Clone, Copy)]
pub(super) struct Sigmoid(pub(super) Shape);

impl Function for Sigmoid {
    const KEPT: Slot = Slot::Output;
    fn shape(&self) -> Shape {
        self.0
    }
    fn value(&self, x: f32) -> f32 {
        logistic(x)
    }
    fn slope(&self, y: f32) -> f32 {
        y * (1.0 - y)
    }
}

/// The hyperbolic tangent.
#[derive(Clone, Copy)]
pub(super) struct Tanh(pub(super) Shape);

impl Function for Tanh {
    const KEPT: Slot = Slot::Output;
    fn shape(&self) -> Shape {
        self.0
    }
    fn value(&self, x: f32) -> f32 {
        x.tanh()
    }
    fn slope(&self, y: f32) -> f32 {
        1.0 - y * y
    }
}

/// Elements of a batch of samples of this shape.
pub(super) fn elements(shape: Shape, operands: &Operands<'_>) -> usize {
    count(&[operands.batch(), count(shape.dims()) as u64])
}

/// `y = f(x)`, in place or not.
pub(super) fn forward<F: Function>(function: &F, operands: &mut Operands<'_>) -> Bound {
    let function = *function;
    let length = elements(function.shape(), operands);
    let mut pair = operands.pair(Slot::Input(0), Slot::Output, length)?;
    kernel(move |_| pair.map(false, |_, x| function.value(x)))
}

/// `dx = dy * f'`, in place or not.
pub(super) fn backward<F: Function>(function: &F, operands: &mut Operands<'_>) -> Bound {
    let function = *function;
    let length = elements(function.shape(), operands);
    let (mut pair, accumulate) = operands.gradients(0, length)?;
    let kept = operands.source(F::KEPT, length)?;
    kernel(move |_| pair.zip(accumulate, kept.get(), |dy, kept| dy * function.slope(kept)))
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

    #[test]
    fn functions_have_their_known_values() {
        let shape = Shape::new(&[1]);
        let close = |a: f32, b: f32| assert!((a - b).abs() < 1e-6 * b.abs().max(1.0), "{a} {b}");
        close(Gelu(shape).value(1.0), 0.841_344_7);
        close(Gelu(shape).value(-2.0), -0.045_500_264);
        close(GeluTanh(shape).value(1.0), 0.841_192);
        close(Silu(shape).value(1.0), 0.731_058_6);
        close(Sigmoid(shape).value(-100.0), 0.0);
        close(Silu(shape).value(-100.0), 0.0);
        close(Tanh(shape).value(0.5), 0.462_117_16);
        close(Relu6(shape).value(7.0), 6.0);
        close(LeakyRelu(shape, 0.25).value(-2.0), -0.5);
        assert!(Relu(shape).value(f32::NAN).is_nan(), "a NaN must not vanish");
    }
}
