//! Losses, and the gradient from which the backward pass starts. P positions (samples, tokens or pixels), C classes.
//!
//! ```text
//! cross entropy  mean over P of log(sum(exp(x))) - x[target]    dx = (softmax(x) - [class = target]) / P
//! mean           mean of x                                      dx = 1 / elements
//! others         mean of value(x, target)                       dx = slope(x, target) / elements
//! ```
//!
//! If only the first time steps of each sample count, `elements` are those of the steps that count. With the reduction `Sum`, nothing is divided.
//! Losses of such steps are in `loss_of_steps.rs`, and cross entropy with options is in `loss_of_classes.rs`. Losses of vectors or sequences are in
//! `cosine_embedding.rs`, `triplet.rs` and `ctc.rs`, those of all samples of a batch in `contrastive.rs` and `mined.rs`. Everything is multiplied
//! with the weight of the term. A term may be added to earlier ones. The gradient may overwrite the logits. Sums over the batch are in double
//! precision.

pub(in crate::kernels) mod class_losses;
pub(in crate::kernels) mod contrastive;
pub(in crate::kernels) mod cosine_embedding;
pub(in crate::kernels) mod ctc;
pub(in crate::kernels) mod loss_of_steps;
pub(in crate::kernels) mod mined;
pub(in crate::kernels) mod triplet;

use super::elementwise::exponential::exp;
use super::elementwise::softmax::{TILE, maxima_and_sums, tiles};
use super::loss::loss_of_steps::Counted;
use super::{Bound, kernel};
use crate::operands::{Operands, Pair, Source, Target, count};
use crate::parallel::{self, GRAIN, PIECE, sum_over};
use crate::simd::wide;
use gpumem_core::error::Error;
use gpumem_core::program::criterion::WEIGHTS;
use gpumem_core::program::loss::{LossOptions, Over};
use gpumem_core::program::{Criterion, Measure, Slot};

/// The input of a loss, and the place of its gradient.
pub(super) enum Logits {
    /// The gradient is wanted. The flag is true if it is added to.
    Pair(Pair, bool),
    /// Only the loss is wanted.
    Alone(Source),
}

impl Logits {
    /// Returns the input with this number.
    pub(super) fn new(operands: &mut Operands<'_>, number: u8, length: usize) -> Result<Logits, Error> {
        let (input, gradient) = (Slot::Input(number), Slot::InputGradient(number));
        if !operands.writes(gradient) {
            return operands.source(input, length).map(Logits::Alone);
        }
        let accumulate = operands.accumulates(gradient);
        let pair = operands.pair(input, gradient, length)?;
        if accumulate && matches!(pair, Pair::InPlace(_)) {
            return Err(Error::Damaged("the loss adds to the gradient that overwrites its logits"));
        }
        Ok(Logits::Pair(pair, accumulate))
    }
}

/// The place of the loss.
pub(super) struct Total {
    target: Target,
    /// True if the term is added to earlier ones.
    sum: bool,
}

impl Total {
    pub(super) fn put(&mut self, term: f64) {
        let total = &mut self.target.get()[0];
        *total = if self.sum { *total + term as f32 } else { term as f32 };
    }
}

/// Factors of the terms of a loss, and the divisor of their sum.
pub(super) struct Weights {
    /// The numbers, and how many consecutive terms share one of them. `None` if all factors are 1.
    given: Option<(Source, usize)>,
    /// The divisor. `None` if it is the sum of the numbers.
    divisor: Option<f64>,
    /// The divisor of all micro-batches of a batch. `None` if the batch is not split.
    of_parts: Option<Source>,
}

impl Weights {
    /// Returns the factors of a loss, and its divisor unless that depends on the targets.
    pub(super) fn new(criterion: &Criterion, operands: &mut Operands<'_>) -> Result<Weights, Error> {
        let numbers = count(&[operands.batch(), criterion.weights()]);
        let given = match criterion.weighted() {
            Some(terms) => Some((operands.source(WEIGHTS, numbers)?, count(&[terms]).max(1))),
            None => None,
        };
        let is_counted = given.is_some() && criterion.counts();
        let divisor = (!is_counted).then(|| criterion.divisor(operands.batch()) as f64);
        let is_given = is_counted && operands.reads(Slot::Saved(0));
        let of_parts = is_given.then(|| operands.source(Slot::Saved(0), count(&[operands.batch()]))).transpose()?;
        if is_counted && operands.writes(Slot::Saved(0)) {
            // This backend computes the divisor without the memory that is planned for it.
            operands.target(Slot::Saved(0), 1)?;
        }
        Ok(Weights { given, divisor, of_parts })
    }

    pub(super) fn is_some(&self) -> bool {
        self.given.is_some()
    }

    /// Returns the factor of a term.
    pub(super) fn of(&self, term: usize) -> f64 {
        self.given.as_ref().map_or(1.0, |(numbers, terms)| f64::from(numbers.get()[term / terms]))
    }

    /// Returns the divisor of the sum of all terms.
    pub(super) fn divisor(&self) -> f64 {
        let sum = || self.given.iter().flat_map(|(numbers, _)| numbers.get()).map(|&number| f64::from(number)).sum();
        let of_parts = self.of_parts.as_ref().map(|divisor| f64::from(divisor.get()[0]));
        self.divisor.or(of_parts).unwrap_or_else(sum)
    }
}

/// Binds the loss to its operands.
pub(super) fn bind(criterion: &Criterion, operands: &mut Operands<'_>) -> Bound {
    let Criterion { outer, whole, classes, inner, weight, .. } = *criterion;
    let length = count(&[operands.batch(), outer, classes, inner]);
    let logits = Logits::new(operands, 0, length)?;
    let sum = operands.aliases(Slot::Loss, Slot::Loss);
    let loss = Total { target: operands.target(Slot::Loss, 1)?, sum };
    match criterion.over() {
        Over::Pairs => return cosine_embedding::bind(criterion, operands, logits, loss),
        Over::Sequences => return ctc::bind(criterion, operands, logits, loss),
        Over::Batch => return contrastive::bind(criterion, operands, logits, loss),
        Over::Triples => return triplet::bind(criterion, operands, logits, loss),
        Over::Rankings => return triplet::bind_ranking(criterion, operands, logits, loss),
        Over::Mined => return mined::bind(criterion, operands, logits, loss),
        Over::Elements | Over::Positions => {}
    }
    // This backend sums in another fixed order, without the scratch memory.
    if operands.writes(Slot::Workspace) {
        let (terms, batched) = criterion.terms();
        let samples = if batched { operands.batch() } else { 1 };
        operands.target(Slot::Workspace, count(&[samples, terms.elements().unwrap_or(0)]))?;
    }
    // Nor does it use the memory of the divisor.
    if operands.writes(Slot::Saved(0)) && criterion.weighted().is_none() {
        operands.target(Slot::Saved(0), 1)?;
    }
    let counted = Counted::new(criterion, operands)?;
    if criterion.kind == Measure::CrossEntropy && criterion.options == LossOptions::DEFAULT {
        let labels = operands.words(Slot::Target, count(&[operands.batch(), whole, inner]))?;
        return cross_entropy(logits, labels, loss, criterion.clone());
    }
    if criterion.over() == Over::Positions {
        return class_losses::bind(criterion, operands, logits, loss);
    }
    let weights = Weights::new(criterion, operands)?;
    let share = weight / criterion.divisor(operands.batch()) as f64;
    if criterion.kind == Measure::Mean {
        let one = |_: usize, x: f32| [f64::from(x), 1.0];
        return match counted {
            Some(counted) => counted.bind((logits, None, loss), |_, x, _| f64::from(x), |_, _, _| 1.0),
            None if weights.is_some() => weighted(logits, loss, weights, weight, one),
            None => mean(logits, loss, share),
        };
    }
    let targets = operands.source(Slot::Target, length)?;
    with(criterion, Elements { logits, targets, loss, share, counted, weights, weight })
}

/// The operands of a loss of elements. It is bound with functions for its value and its slope.
struct Elements {
    logits: Logits,
    targets: Source,
    loss: Total,
    share: f64,
    counted: Option<Counted>,
    weights: Weights,
    /// The factor of the loss and of its gradient.
    weight: f64,
}

/// Binds each loss of elements that has a target.
fn with(criterion: &Criterion, it: Elements) -> Bound {
    let weights = &criterion.options.weights;
    let number = criterion.number();
    let far = |x: f32, t: f32| f64::from(x) - f64::from(t);
    match criterion.kind {
        Measure::Mse => it.bind(move |x, t| far(x, t).powi(2), move |x, t| 2.0 * far(x, t)),
        Measure::Dot => it.bind(|x, t| f64::from(x) * f64::from(t), |_, t| f64::from(t)),
        Measure::L1 => it.bind(move |x, t| far(x, t).abs(), move |x, t| sign(far(x, t))),
        Measure::SmoothL1 => it.bind(
            move |x, t| {
                let d = far(x, t);
                if d.abs() < number { 0.5 * d * d / number } else { d.abs() - 0.5 * number }
            },
            move |x, t| {
                let d = far(x, t);
                if d.abs() < number { d / number } else { sign(d) }
            },
        ),
        Measure::Huber => it.bind(
            move |x, t| {
                let d = far(x, t);
                if d.abs() <= number { 0.5 * d * d } else { number * (d.abs() - 0.5 * number) }
            },
            move |x, t| far(x, t).clamp(-number, number),
        ),
        Measure::KlDiv if criterion.options.log_target => {
            it.bind(|x, t| f64::from(t).exp() * (f64::from(t) - f64::from(x)), |_, t| -f64::from(t).exp())
        }
        Measure::KlDiv => it.bind(
            |x, t| {
                let (x, t) = (f64::from(x), f64::from(t));
                if t == 0.0 { -t * x } else { t * t.ln() - t * x }
            },
            |_, t| -f64::from(t),
        ),
        Measure::BceWithLogits => match weights.len() {
            0 | 1 => {
                let weight = weights.first().copied().unwrap_or(1.0);
                it.bind(move |x, t| binary(x, t, weight), move |x, t| binary_slope(x, t, weight))
            }
            _ => of_classes(it, weights.to_vec(), [count(&[criterion.classes]), count(&[criterion.inner])]),
        },
        Measure::CrossEntropy
        | Measure::Nll
        | Measure::Mean
        | Measure::CosineEmbedding
        | Measure::Ctc
        | Measure::Contrastive
        | Measure::Siglip
        | Measure::NtXent
        | Measure::TripletMargin
        | Measure::MarginRanking => {
            Err(Error::Damaged("a loss of positions, or without a target, is not one of elements"))
        }
    }
}

/// Returns the sign of a number, but 0 and NaN unchanged.
fn sign(d: f64) -> f64 {
    if d == 0.0 { d } else { d.signum() }
}

/// Returns the binary cross entropy of a logit. `weight` multiplies the positive part.
fn binary(x: f32, t: f32, weight: f64) -> f64 {
    let (x, t) = (f64::from(x), f64::from(t));
    (1.0 - t) * x + (1.0 + (weight - 1.0) * t) * ((-x.abs()).exp().ln_1p() + if x < 0.0 { -x } else { 0.0 })
}

fn binary_slope(x: f32, t: f32, weight: f64) -> f64 {
    let (x, t) = (f64::from(x), f64::from(t));
    (1.0 + (weight - 1.0) * t) / (1.0 + (-x).exp()) - weight * t
}

impl Elements {
    /// Binds a loss that treats all classes alike.
    fn bind(
        self,
        value: impl Fn(f32, f32) -> f64 + Copy + Send + Sync + 'static,
        slope: impl Fn(f32, f32) -> f64 + Send + Sync + 'static,
    ) -> Bound {
        let Elements { logits, targets, loss, share, counted, weights, weight } = self;
        if let Some(counted) = counted {
            return counted.bind((logits, Some(targets), loss), move |_, x, t| value(x, t), move |_, x, t| slope(x, t));
        }
        if weights.is_some() {
            let term = move |i: usize, x: f32| {
                let target = targets.get()[i];
                [value(x, target), slope(x, target)]
            };
            return weighted(logits, loss, weights, weight, term);
        }
        let value = move |x, t| value(x, t) * share;
        elementwise(logits, targets, loss, value, move |x, t| (slope(x, t) * share) as f32)
    }
}

/// Binds binary cross entropy with a weight for each class.
fn of_classes(it: Elements, weights: Vec<f64>, [classes, inner]: [usize; 2]) -> Bound {
    let Elements { mut logits, targets, mut loss, share, counted, weights: of_terms, weight } = it;
    let slab = classes * inner;
    if weights.len() != classes {
        return Err(Error::Damaged("the loss has another number of weights than of classes"));
    }
    if let Some(counted) = counted {
        let of_slope = weights.clone();
        let class = move |i: usize| i / inner % classes;
        return counted.bind(
            (logits, Some(targets), loss),
            move |i, x, t| binary(x, t, weights[class(i)]),
            move |i, x, t| binary_slope(x, t, of_slope[class(i)]),
        );
    }
    if of_terms.is_some() {
        let term = move |i: usize, x: f32| {
            let (target, weight) = (targets.get()[i], weights[i / inner % classes]);
            [binary(x, target, weight), binary_slope(x, target, weight)]
        };
        return weighted(logits, loss, of_terms, weight, term);
    }
    kernel(move |_| {
        let targets = targets.get();
        let sum_of = |x: &[f32], t: &[f32]| -> f64 {
            let each = x.chunks_exact(inner).zip(t.chunks_exact(inner)).zip(weights.iter().cycle());
            each.map(|((x, t), &weight)| parallel::sum_of_pairs(x, t, |x, t| binary(x, t, weight))).sum()
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
                    let slope = |i: usize, x| (binary_slope(x, t[i], weights[i / inner]) * share) as f32;
                    match x {
                        None => dx.iter_mut().enumerate().for_each(|(i, dx)| *dx = slope(i, *dx)),
                        Some(x) => parallel::store(dx, *accumulate, |i| slope(i, x[i])),
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

/// Binds a loss that is the sum of `value(x, target)` over all elements, with the derivative `slope`.
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

/// Binds a loss that is the sum of all elements times `share`.
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

/// Binds cross entropy without options. Labels were checked before the step; one beyond the last class would give a NaN.
fn cross_entropy(mut logits: Logits, labels: Source<u32>, mut loss: Total, criterion: Criterion) -> Bound {
    let [classes, inner] = [criterion.classes, criterion.inner].map(|size| count(&[size]));
    let (slab, weight) = (classes * inner, criterion.weight);
    // The position in the target of the first element of a slab. The target has the positions of all chunks.
    let place = move |index: usize| criterion.place((index * inner) as u64) as usize;
    kernel(move |_| {
        let labels = labels.get();
        let share = weight / labels.len() as f64;
        // Returns the losses of the positions of a tile of one slab [C, inner], and the numbers that their gradient needs.
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
                        let (x, labels) = (&x[index * slab..][..slab], &labels[place(index)..][..inner]);
                        sum += tiles(inner).map(|tile| losses(x, labels, &tile).0).sum::<f64>();
                    }
                    sum
                })
            }
            Logits::Pair(pair, accumulate) => {
                let accumulate = *accumulate;
                let (source, target) = pair.get();
                parallel::pieces(source, target, slab, |index, x, dx| {
                    let labels = &labels[place(index)..][..inner];
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
