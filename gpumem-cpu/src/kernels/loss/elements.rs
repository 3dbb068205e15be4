//! Losses of elements: the formulas of their rows in `gpumem_core::program::losses`, computed in double precision.
//!
//! Formulas are closures that are always inlined, into loops that the compiler vectorises.

use super::loss_of_steps::Counted;
use super::{Logits, Total, Weights};
use crate::kernels::{Bound, kernel};
use crate::math::{exp_double, log_double, log1p_double};
use crate::operands::{Operands, Source, count};
use crate::parallel::{self, GRAIN, PIECE, sum_over};
use crate::simd::{Loop, wide};
use gpumem_core::error::Error;
use gpumem_core::program::loss::Compares;
use gpumem_core::program::{Criterion, Measure, Slot};

/// Defines `with_formulas`, which binds a loss of elements with the two formulas of its row as closures of `(x, t, weight)`.
///
/// The arm of `Mse` becomes
///
/// ```text
/// Measure::Mse => elements.bind(
///     move |x, t, weight| { let d = x - t; d * d },
///     move |x, t, weight| { let d = x - t; 2.0 * d },
/// ),
/// ```
macro_rules! define_with_formulas {
    (
        [$x:ident, $t:ident, $d:ident, $number:ident, $weight:ident, $log_target:ident]
        $($(#[$doc:meta])* $name:ident = $wire:literal: $row:expr $(=> { value: $value:expr, slope: $slope:expr, })?;)*
    ) => {
        #[allow(unused_variables, reason = "few formulas use all words")]
        fn with_formulas(criterion: &Criterion, elements: Elements) -> Bound {
            let ($number, $log_target) = (criterion.number(), criterion.options.log_target);
            match criterion.kind {
                $($(Measure::$name => elements.bind(
                    #[inline(always)]
                    move |$x: f64, $t: f64, $weight: f64| {
                        let $d = $x - $t;
                        $value
                    },
                    #[inline(always)]
                    move |$x: f64, $t: f64, $weight: f64| {
                        let $d = $x - $t;
                        $slope
                    },
                ),)?)*
                Measure::Dot => elements.bind(
                    #[inline(always)]
                    |x: f64, t: f64, _: f64| x * t,
                    #[inline(always)]
                    |_: f64, t: f64, _: f64| t,
                ),
                _ => Err(Error::Damaged("a loss of another unit is not one of elements")),
            }
        }
    };
}
gpumem_core::for_each_loss!(define_with_formulas);

#[inline(always)]
fn abs(a: f64) -> f64 {
    a.abs()
}

#[inline(always)]
fn exp(a: f64) -> f64 {
    exp_double(a)
}

#[inline(always)]
fn log(a: f64) -> f64 {
    log_double(a)
}

#[inline(always)]
fn log1p(a: f64) -> f64 {
    log1p_double(a)
}

/// Returns the sign of a number, but 0 and NaN unchanged.
#[inline(always)]
fn sign(a: f64) -> f64 {
    if a == 0.0 { a } else { a.signum() }
}

/// Returns the larger number, or NaN if the first is NaN.
#[inline(always)]
fn max(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// Returns a number between two bounds. Unlike [`f64::clamp`], takes any bounds.
#[inline(always)]
fn clamp(a: f64, least: f64, most: f64) -> f64 {
    if a < least {
        least
    } else if a > most {
        most
    } else {
        a
    }
}

/// A function of an element, of its target and of the weight of its class.
trait Formula<T>: Fn(T, T, f64) -> f64 + Copy + Send + Sync + 'static {}

impl<T, F: Fn(T, T, f64) -> f64 + Copy + Send + Sync + 'static> Formula<T> for F {}

/// Returns a formula of numbers in single precision, which is computed in double precision.
fn of_single(formula: impl Formula<f64>) -> impl Formula<f32> {
    #[inline(always)]
    move |x: f32, t: f32, weight: f64| formula(f64::from(x), f64::from(t), weight)
}

/// The operands of a loss of elements.
struct Elements {
    logits: Logits,
    /// The targets, or `None` for a loss without them.
    targets: Option<Source>,
    loss: Total,
    /// The factor of each term.
    share: f64,
    classes: ClassWeights,
    counted: Option<Counted>,
    weights: Weights,
    /// The factor of the loss and of its gradient.
    weight: f64,
}

/// Binds a loss of elements to its operands.
pub(super) fn bind(criterion: &Criterion, operands: &mut Operands<'_>, logits: Logits, loss: Total) -> Bound {
    let Criterion { outer, classes, inner, weight, .. } = *criterion;
    let counted = Counted::new(criterion, operands)?;
    let weights = Weights::new(criterion, operands)?;
    let length = count(&[operands.batch(), outer, classes, inner]);
    let targets = match criterion.compares() {
        Compares::Nothing => None,
        _ => Some(operands.source(Slot::Target, length)?),
    };
    let share = weight / criterion.divisor(operands.batch()) as f64;
    let classes = ClassWeights::new(criterion)?;
    with_formulas(criterion, Elements { logits, targets, loss, share, classes, counted, weights, weight })
}

/// The weights of the classes of a loss of elements.
#[derive(Clone)]
struct ClassWeights {
    /// One number for each class, or one for all.
    numbers: Vec<f64>,
    /// Positions after the class axis.
    inner: usize,
}

impl ClassWeights {
    fn new(criterion: &Criterion) -> Result<ClassWeights, Error> {
        let numbers = match &*criterion.options.weights {
            [] => vec![1.0],
            numbers => numbers.to_vec(),
        };
        if numbers.len() > 1 && numbers.len() != count(&[criterion.classes]) {
            return Err(Error::Damaged("the loss has another number of weights than of classes"));
        }
        Ok(ClassWeights { numbers, inner: count(&[criterion.inner]) })
    }

    /// Returns the weight of all classes. `None` if they differ.
    fn of_all(&self) -> Option<f64> {
        match *self.numbers {
            [number] => Some(number),
            _ => None,
        }
    }

    /// Returns the weight of the class of an element.
    fn of(&self, element: usize) -> f64 {
        self.of_all().unwrap_or_else(|| self.numbers[element / self.inner % self.numbers.len()])
    }
}

impl Elements {
    /// Binds the loss with the formulas of its value and its slope.
    fn bind(self, value: impl Formula<f64>, slope: impl Formula<f64>) -> Bound {
        let Elements { logits, targets, loss, share, classes, counted, weights, weight } = self;
        let (value, slope) = (of_single(value), of_single(slope));
        if let Some(counted) = counted {
            let of_slope = classes.clone();
            return counted.bind(
                (logits, targets, loss),
                move |i, x, t| value(x, t, classes.of(i)),
                move |i, x, t| slope(x, t, of_slope.of(i)),
            );
        }
        if weights.is_some() {
            let term = move |i: usize, x: f32| {
                let (t, weight) = (targets.as_ref().map_or(0.0, |targets| targets.get()[i]), classes.of(i));
                [value(x, t, weight), slope(x, t, weight)]
            };
            return weighted(logits, loss, weights, weight, term);
        }
        match (targets, classes.of_all()) {
            (None, Some(weight)) => without_targets(logits, loss, share, weight, value, slope),
            (None, None) => Err(Error::Damaged("a loss with a weight for each class has no target")),
            (Some(targets), Some(weight)) => elementwise((logits, targets, loss), share, weight, value, slope),
            (Some(targets), None) => of_classes((logits, targets, loss), share, classes, value, slope),
        }
    }
}

/// The gradient of some elements: `dx (+)= share * slope(x, t, weight)`. Without `x`, `dx` holds it. Without targets, they are 0.
struct Slopes<'a, F> {
    x: Option<&'a [f32]>,
    targets: Option<&'a [f32]>,
    dx: &'a mut [f32],
    accumulate: bool,
    slope: F,
    weight: f64,
    share: f64,
}

impl<F: Formula<f32>> Loop for Slopes<'_, F> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Slopes { x, targets, dx, accumulate, slope, weight, share } = self;
        match (x, targets) {
            (None, None) => dx.iter_mut().for_each(|dx| *dx = (slope(*dx, 0.0, weight) * share) as f32),
            (None, Some(targets)) => {
                for (dx, &t) in dx.iter_mut().zip(targets) {
                    *dx = (slope(*dx, t, weight) * share) as f32;
                }
            }
            (Some(x), None) => {
                for (dx, &x) in dx.iter_mut().zip(x) {
                    let slope = (slope(x, 0.0, weight) * share) as f32;
                    *dx = if accumulate { *dx + slope } else { slope };
                }
            }
            (Some(x), Some(targets)) => {
                for ((dx, &x), &t) in dx.iter_mut().zip(x).zip(targets) {
                    let slope = (slope(x, t, weight) * share) as f32;
                    *dx = if accumulate { *dx + slope } else { slope };
                }
            }
        }
    }
}

/// Binds a loss with a weight for each class.
fn of_classes(
    (mut logits, targets, mut loss): (Logits, Source, Total),
    share: f64,
    ClassWeights { numbers, inner }: ClassWeights,
    value: impl Formula<f32>,
    slope: impl Formula<f32>,
) -> Bound {
    let slab = numbers.len() * inner;
    kernel(move |_| {
        let targets = targets.get();
        let sum_of = |x: &[f32], t: &[f32]| -> f64 {
            let each = x.chunks_exact(inner).zip(t.chunks_exact(inner)).zip(numbers.iter().cycle());
            let sum = |((x, t), &weight): ((&[f32], &[f32]), &f64)| {
                parallel::sum_of_pairs(
                    x,
                    t,
                    #[inline(always)]
                    |x, t| value(x, t, weight),
                )
            };
            each.map(sum).sum()
        };
        let sum = match &mut logits {
            Logits::Alone(source) => {
                let x = source.get();
                sum_over(0..x.len() / slab, GRAIN / slab, &|range| {
                    let range = range.start * slab..range.end * slab;
                    sum_of(&x[range.clone()], &targets[range])
                })
            }
            Logits::Pair(pair, accumulate) => {
                let (source, target) = pair.get();
                parallel::pieces(source, target, slab, |index, x, dx| {
                    let t = &targets[index * slab..][..slab];
                    let sum = sum_of(x.unwrap_or(&*dx), t);
                    for (index, &weight) in numbers.iter().enumerate() {
                        let range = index * inner..(index + 1) * inner;
                        let (x, targets) = (x.map(|x| &x[range.clone()]), Some(&t[range.clone()]));
                        let dx = &mut dx[range];
                        wide(Slopes { x, targets, dx, accumulate: *accumulate, slope, weight, share });
                    }
                    sum
                })
            }
        };
        loss.put(sum * share);
    })
}

/// Binds a loss of elements whose terms have factors. `term(i, x)` returns the value of element `i`, and its slope.
fn weighted(
    mut logits: Logits,
    mut loss: Total,
    weights: Weights,
    weight: f64,
    term: impl Fn(usize, f32) -> [f64; 2] + Send + Sync + 'static,
) -> Bound {
    kernel(move |_| {
        let share = weight / weights.divisor();
        let sum = match &mut logits {
            Logits::Alone(source) => {
                let x = source.get();
                sum_over(0..x.len(), GRAIN, &|range| range.map(|i| weights.of(i) * term(i, x[i])[0]).sum())
            }
            Logits::Pair(pair, accumulate) => {
                let (source, target) = pair.get();
                parallel::pieces(source, target, PIECE, |piece, x, dx| {
                    let mut sum = 0.0;
                    for k in 0..dx.len() {
                        let i = piece * PIECE + k;
                        let ([value, slope], of_term) = (term(i, x.map_or(dx[k], |x| x[k])), weights.of(i));
                        sum += value * of_term;
                        let slope = (slope * of_term * share) as f32;
                        dx[k] = if *accumulate { dx[k] + slope } else { slope };
                    }
                    sum
                })
            }
        };
        loss.put(sum * share);
    })
}

/// Binds a loss that is the sum of `value(x, target, weight)` over all elements times `share`.
fn elementwise(
    (mut logits, targets, mut loss): (Logits, Source, Total),
    share: f64,
    weight: f64,
    value: impl Formula<f32>,
    slope: impl Formula<f32>,
) -> Bound {
    let sum_of = move |x: &[f32], t: &[f32]| {
        parallel::sum_of_pairs(
            x,
            t,
            #[inline(always)]
            |x, t| value(x, t, weight) * share,
        )
    };
    kernel(move |_| {
        let targets = targets.get();
        let sum = match &mut logits {
            Logits::Alone(source) => {
                let x = source.get();
                sum_over(0..x.len(), GRAIN, &|range| sum_of(&x[range.clone()], &targets[range]))
            }
            Logits::Pair(pair, accumulate) => {
                let accumulate = *accumulate;
                let (source, target) = pair.get();
                parallel::pieces(source, target, PIECE, |piece, x, dx| {
                    let targets = &targets[piece * PIECE..][..dx.len()];
                    let sum = sum_of(x.unwrap_or(&*dx), targets);
                    wide(Slopes { x, targets: Some(targets), dx, accumulate, slope, weight, share });
                    sum
                })
            }
        };
        loss.put(sum);
    })
}

/// Binds a loss that is the sum of `value(x, 0, weight)` over all elements times `share`.
fn without_targets(
    mut logits: Logits,
    mut loss: Total,
    share: f64,
    weight: f64,
    value: impl Formula<f32>,
    slope: impl Formula<f32>,
) -> Bound {
    let sum_of = move |x: &[f32]| {
        parallel::sum(
            x,
            #[inline(always)]
            |x| value(x, 0.0, weight),
        )
    };
    kernel(move |_| {
        let sum = match &mut logits {
            Logits::Alone(source) => {
                let x = source.get();
                sum_over(0..x.len(), GRAIN, &|range| sum_of(&x[range]))
            }
            Logits::Pair(pair, accumulate) => {
                let accumulate = *accumulate;
                let (source, target) = pair.get();
                parallel::pieces(source, target, PIECE, |_, x, dx| {
                    let sum = sum_of(x.unwrap_or(&*dx));
                    wide(Slopes { x, targets: None, dx, accumulate, slope, weight, share });
                    sum
                })
            }
        };
        loss.put(sum * share);
    })
}
