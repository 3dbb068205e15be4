//! Losses of positions with all options. There are `P` positions and `C` classes. Each class has a weight `w` and a share `q` of the target.
//!
//! ```text
//! cross entropy  sum over C of q w (log(sum(exp(x))) - x)    dx = softmax(x) * (sum over C of q w) - q w
//! nll            sum over C of -q w x                        dx = -q w
//! ```
//!
//! The loss is divided by its divisor. Label smoothing `e` turns `q` into `(1 - e) q + e / C`. An ignored position has neither term nor gradient.

use crate::kernels::loss::{Logits, Total, Weights};
use crate::kernels::{Bound, kernel};
use crate::math::exp;
use crate::operands::{Operands, Source, count};
use crate::parallel::{self, GRAIN, sum_over};
use gpumem_core::error::Error;
use gpumem_core::program::{Criterion, Measure, Slot};

/// The targets of the positions.
enum Targets {
    /// A class for each position.
    Classes(Source<u32>),
    /// A share for each class of each position.
    Shares(Source),
}

struct OfClasses {
    criterion: Criterion,
    classes: usize,
    inner: usize,
    smoothing: f64,
    divisor: Divisor,
    targets: Targets,
    weights: Weights,
}

/// The divisor of the sum.
enum Divisor {
    Known(f64),
    /// The sum of the weights of the targets.
    OfTargets,
    /// The sum of the weights of the targets of all micro-batches of a batch.
    Given(Source),
}

/// The numbers, other than the shares, that the gradient of a position needs.
#[derive(Clone, Copy)]
struct Position {
    term: f64,
    largest: f32,
    /// The sum of the weighted shares, divided by that of the exponentials.
    factor: f32,
    counts: bool,
}

impl OfClasses {
    fn weight(&self, class: usize) -> f64 {
        match &*self.criterion.options.weights {
            [] => 1.0,
            weights => weights.get(class).copied().unwrap_or(f64::NAN),
        }
    }

    fn divisor(&self) -> f64 {
        if self.weights.is_some() {
            return self.weights.divisor();
        }
        match (&self.targets, &self.divisor) {
            (Targets::Classes(labels), Divisor::OfTargets) => {
                let labels = labels.get();
                sum_over(0..labels.len(), GRAIN, &|range| {
                    labels[range].iter().map(|&label| self.criterion.weight_of(label)).sum()
                })
            }
            (Targets::Shares(_), Divisor::OfTargets) => 1.0,
            (_, Divisor::Given(divisor)) => f64::from(divisor.get()[0]),
            (_, Divisor::Known(divisor)) => *divisor,
        }
    }

    /// Returns the index in the target of a position of the logits, which are counted over all slabs.
    fn place(&self, position: usize) -> usize {
        self.criterion.place(position as u64) as usize
    }

    /// Returns the weighted share of a class at a position of the target.
    fn share(&self, position: usize, class: usize) -> f64 {
        let hit = match &self.targets {
            Targets::Classes(labels) => f64::from(u8::from(labels.get()[position] as usize == class)),
            Targets::Shares(shares) => {
                let (slab, at) = (position / self.inner, position % self.inner);
                f64::from(shares.get()[(slab * self.classes + class) * self.inner + at])
            }
        };
        ((1.0 - self.smoothing) * hit + self.smoothing / self.classes as f64) * self.weight(class)
    }

    /// Returns the numbers of a position with this index in the target.
    fn position(&self, position: usize, x: impl Fn(usize) -> f32) -> Position {
        let nothing = Position { term: 0.0, largest: 0.0, factor: 0.0, counts: false };
        if let Targets::Classes(labels) = &self.targets {
            let label = labels.get()[position];
            if self.criterion.options.ignored == Some(label) {
                return nothing;
            }
            // Labels were checked before the step.
            if label as usize >= self.classes {
                return Position { term: f64::NAN, counts: true, ..nothing };
            }
        }
        let picked: f64 = (0..self.classes)
            .map(|class| (self.share(position, class), class))
            .filter(|(share, _)| *share != 0.0)
            .map(|(share, class)| share * f64::from(x(class)))
            .sum();
        if self.criterion.kind == Measure::Nll {
            return Position { term: -picked, counts: true, ..nothing };
        }
        let mass: f64 = (0..self.classes).map(|class| self.share(position, class)).sum();
        let larger = |largest: f32, class| if x(class) > largest { x(class) } else { largest };
        let largest = (0..self.classes).fold(f32::NEG_INFINITY, larger);
        let sum: f64 = (0..self.classes).map(|class| f64::from(exp(x(class) - largest))).sum();
        let term = mass * (f64::from(largest) + sum.ln()) - picked;
        Position { term, largest, factor: (mass / sum) as f32, counts: true }
    }

    /// Returns the gradient of a class at a position of the target, before it is scaled.
    fn gradient(&self, of: Position, position: usize, class: usize, x: f32) -> f32 {
        let softmax = if self.criterion.kind == Measure::Nll { 0.0 } else { exp(x - of.largest) * of.factor };
        softmax - self.share(position, class) as f32
    }
}

/// Binds a loss of positions to its operands.
pub(in crate::kernels) fn bind(
    criterion: &Criterion,
    operands: &mut Operands<'_>,
    mut logits: Logits,
    mut loss: Total,
) -> Bound {
    let Criterion { whole, classes, inner, weight, .. } = *criterion;
    let targets = if criterion.options.probabilities {
        Targets::Shares(operands.source(Slot::Target, count(&[operands.batch(), whole, classes, inner]))?)
    } else {
        Targets::Classes(operands.words(Slot::Target, count(&[operands.batch(), whole, inner]))?)
    };
    let [classes, inner] = [count(&[classes]), count(&[inner])];
    if ![0, classes].contains(&criterion.options.weights.len()) {
        return Err(Error::Damaged("the loss has another number of weights than of classes"));
    }
    let weights = Weights::new(criterion, operands)?;
    let divisor = match criterion.counts() && !weights.is_some() {
        false => Divisor::Known(criterion.divisor(operands.batch()) as f64),
        true if operands.reads(Slot::Saved(0)) => {
            Divisor::Given(operands.source(Slot::Saved(0), count(&[operands.batch()]))?)
        }
        true => Divisor::OfTargets,
    };
    let smoothing = criterion.number();
    let it = OfClasses { criterion: criterion.clone(), classes, inner, smoothing, divisor, targets, weights };
    let slab = classes * inner;
    kernel(move |_| {
        let scale = weight / it.divisor();
        let sum = match &mut logits {
            Logits::Alone(source) => {
                let x = source.get();
                sum_over(0..x.len() / slab, GRAIN / slab, &|range| {
                    let positions = range.start * inner..range.end * inner;
                    let at = |position: usize, class| position / inner * slab + class * inner + position % inner;
                    let term = |position: usize| {
                        let place = it.place(position);
                        it.position(place, |class| x[at(position, class)]).term * it.weights.of(place)
                    };
                    positions.map(term).sum()
                })
            }
            Logits::Pair(pair, accumulate) => {
                let accumulate = *accumulate;
                let (source, target) = pair.get();
                parallel::pieces(source, target, slab, |index, x, dx| {
                    let mut sum = 0.0;
                    for offset in 0..inner {
                        let position = it.place(index * inner + offset);
                        let of = it.position(position, |class| x.unwrap_or(&*dx)[class * inner + offset]);
                        let of_position = it.weights.of(position);
                        sum += of.term * of_position;
                        for class in 0..classes {
                            let at = class * inner + offset;
                            let x = x.map_or(dx[at], |x| x[at]);
                            let value = match of.counts {
                                true => it.gradient(of, position, class, x) * (scale * of_position) as f32,
                                false => 0.0,
                            };
                            dx[at] = if accumulate { dx[at] + value } else { value };
                        }
                    }
                    sum
                })
            }
        };
        loss.put(sum * scale);
    })
}
