//! Losses, and the gradient from which the backward pass starts. P positions (samples, tokens or pixels), C classes.
//!
//! ```text
//! cross entropy  mean over P of log(sum(exp(x))) - x[target]    dx = (softmax(x) - [class = target]) / P
//! of elements    mean of value(x, target)                       dx = slope(x, target) / elements
//! ```
//!
//! If only the first time steps of each sample count, `elements` are those of the steps that count. With the reduction `Sum`, nothing is divided.
//! Losses of elements are in `elements.rs` and `loss_of_steps.rs`, cross entropy with options is in `class_losses.rs`, and each other loss in a
//! file of its name. Everything is multiplied with the weight of the term. A term may be added to earlier ones. The gradient may overwrite the
//! logits. Sums over the batch are in double precision.

mod class_losses;
mod contrastive;
mod cosine_embedding;
mod ctc;
mod elements;
mod loss_of_steps;
mod margin_ranking;
mod mined;
mod triplet_margin;
mod values;

use super::elementwise::softmax::{TILE, maxima_and_sums, tiles};
use super::{Bound, kernel};
use crate::math::{exp, exponentials};
use crate::operands::{Operands, Pair, Source, Target, count};
use crate::parallel::{self, GRAIN, sum_over};
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
    let Criterion { outer, classes, inner, .. } = *criterion;
    let logits = Logits::new(operands, 0, count(&[operands.batch(), outer, classes, inner]))?;
    let sum = operands.aliases(Slot::Loss, Slot::Loss);
    let loss = Total { target: operands.target(Slot::Loss, 1)?, sum };
    match criterion.kind {
        Measure::CosineEmbedding => cosine_embedding::bind(criterion, operands, logits, loss),
        Measure::Ctc => ctc::bind(criterion, operands, logits, loss),
        Measure::Contrastive | Measure::Siglip | Measure::NtXent => {
            contrastive::bind(criterion, operands, logits, loss)
        }
        Measure::TripletMargin if criterion.over() == Over::Mined => mined::bind(criterion, operands, logits, loss),
        Measure::TripletMargin => triplet_margin::bind(criterion, operands, logits, loss),
        Measure::MarginRanking => margin_ranking::bind(criterion, operands, logits, loss),
        _ => of_positions_or_elements(criterion, operands, logits, loss),
    }
}

/// Binds a loss whose terms are independent of each other.
fn of_positions_or_elements(criterion: &Criterion, operands: &mut Operands<'_>, logits: Logits, loss: Total) -> Bound {
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
    if criterion.kind == Measure::CrossEntropy && criterion.options == LossOptions::DEFAULT {
        let labels = operands.words(Slot::Target, count(&[operands.batch(), criterion.whole, criterion.inner]))?;
        return cross_entropy(logits, labels, loss, criterion.clone());
    }
    match criterion.over() {
        Over::Positions => class_losses::bind(criterion, operands, logits, loss),
        _ => elements::bind(criterion, operands, logits, loss),
    }
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
                            exponentials(x, dx, accumulate, [max, factor]);
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
