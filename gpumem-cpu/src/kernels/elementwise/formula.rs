//! Formulas of the user, applied to every element: `y = f(x)`, and `dx = dy * f'(x, y)`.
//!
//! A formula is computed term by term for [`LANES`] elements at a time, so that the loop over the terms costs little.

use crate::kernels::elementwise::pointwise::elements;
use crate::kernels::elementwise::scalar;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Source};
use crate::parallel::{self, with_scratch};
use crate::simd::{Loop, wide};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::formula::{BinaryOperator, Formula, Term, TermId, UnaryOperator};
use gpumem_core::program::ops;

/// Elements for which a term is computed at once.
const LANES: usize = 64;

/// Elements that share the memory for their terms.
const PIECE: usize = 4096;

type Lanes = [f32; LANES];

/// Computes the values of all terms, and returns those of the last one, which is the formula's value.
fn evaluate<'t>(formula: &Formula, x: &Lanes, y: &Lanes, terms: &'t mut [Lanes]) -> &'t Lanes {
    for (index, term) in formula.terms.iter().enumerate() {
        let (known, rest) = terms.split_at_mut(index);
        let (out, of) = (&mut rest[0], |id: TermId| &known[id as usize]);
        match *term {
            Term::X => *out = *x,
            Term::Y => *out = *y,
            Term::Number(value) => *out = [value as f32; LANES],
            Term::Unary(operator, a) => unary(operator, of(a), out),
            Term::Binary(operator, a, b) => binary(operator, of(a), of(b), out),
            Term::Select(condition, a, b) => {
                let (condition, a, b) = (of(condition), of(a), of(b));
                *out = std::array::from_fn(|i| if condition[i] == 0.0 { b[i] } else { a[i] });
            }
        }
    }
    &terms[formula.terms.len() - 1]
}

/// Computes the elements of `$out` from those of other lanes: `lanes!(out, |a, b| a + b)`.
///
/// The loop has a type of its own, because one that calls a function by a pointer is not compiled for several instruction sets.
macro_rules! lanes {
    ($out:ident, |$($x:ident),+| $value:expr) => {{
        struct Each<'a> {
            out: &'a mut Lanes,
            $($x: &'a Lanes,)+
        }

        impl Loop for Each<'_> {
            type Output = ();

            #[inline(always)]
            fn call(self) {
                for i in 0..LANES {
                    $(let $x = self.$x[i];)+
                    self.out[i] = $value;
                }
            }
        }
        wide(Each { out: $out, $($x),+ })
    }};
}

fn unary(operator: UnaryOperator, a: &Lanes, out: &mut Lanes) {
    match operator {
        UnaryOperator::Negate => lanes!(out, |a| -a),
        UnaryOperator::Exp => lanes!(out, |a| scalar::exp(a)),
        UnaryOperator::Expm1 => lanes!(out, |a| scalar::expm1(a)),
        UnaryOperator::Log => lanes!(out, |a| scalar::log(a)),
        UnaryOperator::Log1p => lanes!(out, |a| scalar::log1p(a)),
        UnaryOperator::Sqrt => lanes!(out, |a| scalar::sqrt(a)),
        UnaryOperator::Abs => lanes!(out, |a| scalar::abs(a)),
        UnaryOperator::Sign => lanes!(out, |a| scalar::sign(a)),
        UnaryOperator::Sin => lanes!(out, |a| scalar::sin(a)),
        UnaryOperator::Cos => lanes!(out, |a| scalar::cos(a)),
        UnaryOperator::Tanh => lanes!(out, |a| scalar::tanh(a)),
        UnaryOperator::Sigmoid => lanes!(out, |a| scalar::sigmoid(a)),
        UnaryOperator::Softplus => lanes!(out, |a| scalar::softplus(a)),
        UnaryOperator::Erf => lanes!(out, |a| scalar::erf(a)),
        UnaryOperator::Floor => lanes!(out, |a| scalar::floor(a)),
        UnaryOperator::Round => lanes!(out, |a| scalar::round(a)),
    }
}

fn binary(operator: BinaryOperator, a: &Lanes, b: &Lanes, out: &mut Lanes) {
    match operator {
        BinaryOperator::Add => lanes!(out, |a, b| a + b),
        BinaryOperator::Subtract => lanes!(out, |a, b| a - b),
        BinaryOperator::Multiply => lanes!(out, |a, b| a * b),
        BinaryOperator::Divide => lanes!(out, |a, b| a / b),
        BinaryOperator::Power => lanes!(out, |a, b| scalar::pow(a, b)),
        BinaryOperator::Minimum => lanes!(out, |a, b| scalar::min(a, b)),
        BinaryOperator::Maximum => lanes!(out, |a, b| scalar::max(a, b)),
        BinaryOperator::Less => lanes!(out, |a, b| f32::from(u8::from(a < b))),
        BinaryOperator::LessOrEqual => lanes!(out, |a, b| f32::from(u8::from(a <= b))),
        BinaryOperator::Equal => lanes!(out, |a, b| f32::from(u8::from(a == b))),
    }
}

/// Returns the formula. Fails if it names terms that do not exist.
fn sound(formula: &Formula) -> Result<Formula, Error> {
    if formula.is_sound() {
        Ok(formula.clone())
    } else {
        Err(Error::Damaged("a formula names terms that do not exist"))
    }
}

/// Returns `count` numbers of `from`, beginning at `first`. The remaining lanes are 0.
fn gather(from: Option<&[f32]>, first: usize, count: usize) -> Lanes {
    let mut lanes = [0.0; LANES];
    if let Some(from) = from {
        lanes[..count].copy_from_slice(&from[first..first + count]);
    }
    lanes
}

/// Computes `y = f(x)`, in place or not.
pub(in crate::kernels) fn forward(op: &ops::Formula, operands: &mut Operands<'_>) -> Bound {
    let value = sound(&op.value)?;
    let mut pair = operands.pair(Slot::Input(0), Slot::Output, elements(op.shape, operands))?;
    kernel(move |_| {
        let (source, target) = pair.get();
        parallel::pieces(source, target, PIECE, |_, x, y| {
            with_scratch(value.terms.len() * LANES, |terms| {
                for first in (0..y.len()).step_by(LANES) {
                    let count = LANES.min(y.len() - first);
                    let lanes = gather(Some(x.unwrap_or(&*y)), first, count);
                    let result = evaluate(&value, &lanes, &[0.0; LANES], terms.as_chunks_mut().0);
                    y[first..first + count].copy_from_slice(&result[..count]);
                }
            });
            0.0
        });
    })
}

/// Computes `dx = dy * f'(x, y)`, in place or not.
pub(in crate::kernels) fn backward(op: &ops::Formula, operands: &mut Operands<'_>) -> Bound {
    let (slope, length) = (sound(&op.slope)?, elements(op.shape, operands));
    let (mut pair, accumulate) = operands.gradients(0, length)?;
    let x = operands.source_if(slope.reads_x(), Slot::Input(0), length)?;
    let y = operands.source_if(slope.reads_y(), Slot::Output, length)?;
    kernel(move |_| {
        let (source, target) = pair.get();
        let [x, y] = [&x, &y].map(|kept| kept.as_ref().map(Source::get));
        parallel::pieces(source, target, PIECE, |piece, dy, dx| {
            with_scratch(slope.terms.len() * LANES, |terms| {
                for first in (0..dx.len()).step_by(LANES) {
                    let count = LANES.min(dx.len() - first);
                    let [x, y] = [x, y].map(|kept| gather(kept, piece * PIECE + first, count));
                    let dy = gather(Some(dy.unwrap_or(&*dx)), first, count);
                    let slopes = evaluate(&slope, &x, &y, terms.as_chunks_mut().0);
                    for ((dx, dy), slope) in dx[first..first + count].iter_mut().zip(dy).zip(slopes) {
                        *dx = if accumulate { *dx + dy * slope } else { dy * slope };
                    }
                }
            });
            0.0
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(terms: Vec<Term>, x: f32) -> f32 {
        let formula = Formula { terms };
        assert!(formula.is_sound());
        let mut room = vec![[0.0; LANES]; formula.terms.len()];
        evaluate(&formula, &[x; LANES], &[0.0; LANES], &mut room)[LANES - 1]
    }

    #[test]
    fn operators_have_their_values() {
        let of = |operator, x| value(vec![Term::X, Term::Unary(operator, 0)], x);
        assert_eq!(of(UnaryOperator::Round, 2.5), 2.0);
        assert_eq!(of(UnaryOperator::Floor, -0.5), -1.0);
        assert_eq!([-3.0, 0.0, 0.5].map(|x| of(UnaryOperator::Sign, x)), [-1.0, 0.0, 1.0]);
        assert!(of(UnaryOperator::Sign, f32::NAN).is_nan());
        assert!((of(UnaryOperator::Erf, 1e-4) - 1.128_379_1e-4).abs() < 1e-10);
        assert_eq!(of(UnaryOperator::Softplus, 100.0), 100.0);
        assert_eq!(of(UnaryOperator::Softplus, -100.0), scalar::exp(-100.0));
        assert!(of(UnaryOperator::Softplus, f32::NAN).is_nan());
        let with = |operator, x| value(vec![Term::X, Term::Number(2.0), Term::Binary(operator, 0, 1)], x);
        assert_eq!(with(BinaryOperator::Power, -3.0), 9.0);
        assert_eq!([1.0, 2.0, 3.0].map(|x| with(BinaryOperator::LessOrEqual, x)), [1.0, 1.0, 0.0]);
        for operator in [BinaryOperator::Minimum, BinaryOperator::Maximum] {
            assert!(with(operator, f32::NAN).is_nan());
            assert!(value(vec![Term::X, Term::Number(2.0), Term::Binary(operator, 1, 0)], f32::NAN).is_nan());
        }
        let select = vec![Term::X, Term::Number(7.0), Term::Number(8.0), Term::Select(0, 1, 2)];
        assert_eq!([0.0, 0.5].map(|x| value(select.clone(), x)), [8.0, 7.0]);
    }

    #[test]
    fn slopes_keep_their_digits_in_tails() {
        let slope = |operator, x: f32| {
            let mut formula = Formula::default();
            let input = formula.add(Term::X);
            let value = formula.add(Term::Unary(operator, input));
            self::value(formula.derivative(value).terms, x)
        };
        let close = |found: f32, expected: f64| {
            assert!((f64::from(found) / expected - 1.0).abs() < 1e-5, "{found:e} {expected:e}");
        };
        close(slope(UnaryOperator::Expm1, -20.0), (-20f64).exp());
        close(slope(UnaryOperator::Sigmoid, -86.0), (-86f64).exp());
        close(slope(UnaryOperator::Softplus, -90.0), (-90f64).exp());
        close(value(vec![Term::X, Term::Unary(UnaryOperator::Sigmoid, 0)], -90.0), (-90f64).exp());
    }
}
