//! The loss and the gradient that the backward pass starts from. P positions (samples, tokens or pixels), C classes.
//!
//! ```text
//! cross entropy  mean over P of log(sum(exp(x))) - x[target]    dx = (softmax(x) - [class = target]) / P
//! mse            mean of (x - target)^2                         dx = 2 * (x - target) / elements
//! mean           mean of x                                      dx = 1 / elements
//! dot            sum of x * target                              dx = target
//! ```
//!
//! All of it times the term's weight. A term may be added to those before it. The gradient may overwrite the logits. The sum over the batch is taken in double precision.

use super::exponential::exp;
use super::softmax::{TILE, maxima_and_sums, tiles};
use super::{Bound, kernel};
use crate::operands::{Operands, Pair, Source, Target, count};
use crate::parallel::{self, GRAIN, PIECE, sum_over};
use crate::simd::wide;
use gpumem_core::error::Error;
use gpumem_core::program::{Criterion, Measure, Slot};

/// What the loss reads as logits, and where their gradient goes.
enum Logits {
    /// The gradient is wanted; true if it is added to.
    Pair(Pair, bool),
    /// Only the loss is wanted.
    Alone(Source),
}

impl Logits {
    fn new(operands: &mut Operands<'_>, length: usize) -> Result<Logits, Error> {
        if !operands.writes(Slot::InputGradient(0)) {
            return operands.source(Slot::Input(0), length).map(Logits::Alone);
        }
        let accumulate = operands.accumulates(Slot::InputGradient(0));
        let pair = operands.pair(Slot::Input(0), Slot::InputGradient(0), length)?;
        if accumulate && matches!(pair, Pair::InPlace(_)) {
            return Err(Error::Damaged("the loss adds to the gradient that overwrites its logits"));
        }
        Ok(Logits::Pair(pair, accumulate))
    }
}

/// Where the loss goes.
struct Total {
    target: Target,
    /// Whether it is added to the terms before it.
    sum: bool,
}

impl Total {
    fn put(&mut self, term: f64) {
        let total = &mut self.target.get()[0];
        *total = if self.sum { *total + term as f32 } else { term as f32 };
    }
}

/// Binds the loss.
pub(super) fn bind(criterion: &Criterion, operands: &mut Operands<'_>) -> Bound {
    let Criterion { outer, classes, inner, weight, .. } = *criterion;
    let length = count(&[operands.batch(), outer, classes, inner]);
    let logits = Logits::new(operands, length)?;
    let sum = operands.aliases(Slot::Loss, Slot::Loss);
    let loss = Total { target: operands.target(Slot::Loss, 1)?, sum };
    // The sum is made in another fixed order here, which needs no scratch memory.
    if operands.writes(Slot::Workspace) {
        let (terms, batched) = criterion.terms();
        let samples = if batched { operands.batch() } else { 1 };
        operands.target(Slot::Workspace, count(&[samples, terms.elements().unwrap_or(0)]))?;
    }
    match criterion.kind {
        Measure::CrossEntropy => {
            let labels = operands.words(Slot::Target, count(&[operands.batch(), outer, inner]))?;
            cross_entropy(logits, labels, loss, weight, [count(&[classes]), count(&[inner])])
        }
        Measure::Mse => {
            let share = weight / length as f64;
            let square = move |x: f32, t: f32| (f64::from(x) - f64::from(t)).powi(2) * share;
            let slope = move |x: f32, t: f32| (2.0 * share * (f64::from(x) - f64::from(t))) as f32;
            elementwise(logits, operands.source(Slot::Target, length)?, loss, square, slope)
        }
        Measure::Mean => mean(logits, loss, weight / length as f64),
        Measure::Dot => {
            let product = move |x: f32, t: f32| f64::from(x) * f64::from(t) * weight;
            let slope = move |_, t: f32| t * weight as f32;
            elementwise(logits, operands.source(Slot::Target, length)?, loss, product, slope)
        }
    }
}

/// A loss that is a sum of `value(x, target)` over all elements, with the derivative `slope`.
fn elementwise(
    mut logits: Logits,
    targets: Source,
    mut loss: Total,
    value: impl Fn(f32, f32) -> f64 + Copy + Send + Sync + 'static,
    slope: impl Fn(f32, f32) -> f32 + Send + Sync + 'static,
) -> Bound {
    kernel(move |_| {
        let targets = targets.get();
        let sum = match &mut logits {
            Logits::Alone(source) => {
                let x = source.get();
                sum_over(0..x.len(), GRAIN, &|range| parallel::sum_of_pairs(&x[range.clone()], &targets[range], value))
            }
            Logits::Pair(pair, accumulate) => {
                let (source, target) = pair.get();
                parallel::pieces(source, target, PIECE, |piece, x, dx| {
                    let targets = &targets[piece * PIECE..][..dx.len()];
                    let sum = parallel::sum_of_pairs(x.unwrap_or(&*dx), targets, value);
                    match x {
                        None => dx.iter_mut().zip(targets).for_each(|(dx, &t)| *dx = slope(*dx, t)),
                        Some(x) => parallel::store(dx, *accumulate, |i| slope(x[i], targets[i])),
                    }
                    sum
                })
            }
        };
        loss.put(sum);
    })
}

/// The sum of all elements times `share`.
fn mean(mut logits: Logits, mut loss: Total, share: f64) -> Bound {
    let sum_of = |x: &[f32]| x.iter().map(|&x| f64::from(x)).sum::<f64>();
    kernel(move |_| {
        let sum = match &mut logits {
            Logits::Alone(source) => {
                let x = source.get();
                sum_over(0..x.len(), GRAIN, &|range| sum_of(&x[range]))
            }
            Logits::Pair(pair, accumulate) => {
                let (source, target) = pair.get();
                parallel::pieces(source, target, PIECE, |_, x, dx| {
                    let sum = sum_of(x.unwrap_or(&*dx));
                    parallel::store(dx, *accumulate, |_| share as f32);
                    sum
                })
            }
        };
        loss.put(sum * share);
    })
}

/// Labels were checked before the step; one beyond the last class would give a NaN.
fn cross_entropy(
    mut logits: Logits,
    labels: Source<u32>,
    mut loss: Total,
    weight: f64,
    [classes, inner]: [usize; 2],
) -> Bound {
    let slab = classes * inner;
    kernel(move |_| {
        let labels = labels.get();
        let share = weight / labels.len() as f64;
        // Losses of the positions of a tile of one slab [C, inner], and what their gradient needs.
        let losses = |x: &[f32], labels: &[u32], tile: &std::ops::Range<usize>| {
            let (maxima, sums) = maxima_and_sums(x, inner, tile);
            let mut total = 0.0;
            for (i, position) in tile.clone().enumerate() {
                let label = labels[position] as usize;
                let picked = if label < classes { f64::from(x[label * inner + position]) } else { f64::NAN };
                total += f64::from(maxima[i]) + sums[i].ln() - picked;
            }
            (total, maxima, sums)
        };
        let sum = match &mut logits {
            Logits::Alone(source) => {
                let x = source.get();
                sum_over(0..x.len() / slab, GRAIN / slab, &|range| {
                    let mut sum = 0.0;
                    for index in range {
                        let (x, labels) = (&x[index * slab..][..slab], &labels[index * inner..][..inner]);
                        sum += tiles(inner).map(|tile| losses(x, labels, &tile).0).sum::<f64>();
                    }
                    sum
                })
            }
            Logits::Pair(pair, accumulate) => {
                let accumulate = *accumulate;
                let (source, target) = pair.get();
                parallel::pieces(source, target, slab, |index, x, dx| {
                    let labels = &labels[index * inner..][..inner];
                    let mut sum = 0.0;
                    for tile in tiles(inner) {
                        let (total, maxima, sums) = losses(x.unwrap_or(&*dx), labels, &tile);
                        sum += total;
                        let factors: [f32; TILE] = std::array::from_fn(|i| (share / sums[i]) as f32);
                        if inner == 1 {
                            let (max, factor) = (maxima[0], factors[0]);
                            match x {
                                None => wide(|| dx.iter_mut().for_each(|dx| *dx = exp(*dx - max) * factor)),
                                Some(x) => parallel::store(dx, accumulate, |i| exp(x[i] - max) * factor),
                            }
                            if let Some(dx) = dx.get_mut(labels[0] as usize) {
                                *dx -= share as f32;
                            }
                            continue;
                        }
                        for class in 0..classes {
                            for (i, position) in tile.clone().enumerate() {
                                let at = class * inner + position;
                                let x = x.map_or(dx[at], |x| x[at]);
                                let hit = if labels[position] as usize == class { share as f32 } else { 0.0 };
                                let value = exp(x - maxima[i]) * factors[i] - hit;
                                dx[at] = if accumulate { dx[at] + value } else { value };
                            }
                        }
                    }
                    sum
                })
            }
        };
        loss.put(sum * share);
    })
}
