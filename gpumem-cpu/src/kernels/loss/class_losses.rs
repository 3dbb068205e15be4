//! Losses of positions with all options. There are `P` positions and `C` classes. Each class has a weight `w` and a share `q` of the target.
//!
//! ```text
//! cross entropy  sum over C of q w (log(sum(exp(x))) - x)    dx = softmax(x) * (sum over C of q w) - q w
//! nll            sum over C of -q w x                        dx = -q w
//! ```
//!
//! Positions go through in tiles, whose elements are next to each other: one class at up to [`TILE`] positions, or, if each slab of logits has one
//! position, up to [`TILE`] classes of it. So the compiler vectorises all loops over elements.
//!
//! The loss is divided by its divisor. Label smoothing `e` turns `q` into `(1 - e) q + e / C`. An ignored position has neither term nor gradient.

use crate::kernels::elementwise::softmax::{TILE, maxima_and_sums, tiles};
use crate::kernels::loss::{Logits, Total, Weights};
use crate::kernels::{Bound, kernel};
use crate::math::exp;
use crate::operands::{Operands, Source, count};
use crate::parallel::{self, GRAIN, sum_over};
use crate::simd::{Loop, wide};
use gpumem_core::error::Error;
use gpumem_core::program::{Criterion, Measure, Slot};
use std::ops::Range;

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

/// The numbers, other than the shares, that the gradients of a tile's elements need.
struct Tile {
    maxima: [f32; TILE],
    /// The sum of the weighted shares, divided by that of the exponentials.
    factors: [f32; TILE],
    scales: [f32; TILE],
    /// False at ignored positions.
    counts: [bool; TILE],
}

/// Weighted shares and elements, whose products and whose shares are added to sums.
struct Pick<'a> {
    shares: &'a [f64],
    x: &'a [f32],
    picked: &'a mut [f64; TILE],
    masses: &'a mut [f64; TILE],
}

impl Loop for Pick<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let sums = self.picked.iter_mut().zip(self.masses);
        for ((&share, &x), (picked, mass)) in self.shares.iter().zip(self.x).zip(sums) {
            // An element without a share may be infinite.
            *picked += if share != 0.0 { share * f64::from(x) } else { 0.0 };
            *mass += share;
        }
    }
}

/// Elements of a tile, and the place of their gradients. Without `x`, `dx` holds the elements.
struct Slopes<'a> {
    tile: &'a Tile,
    shares: &'a [f64],
    x: Option<&'a [f32]>,
    dx: &'a mut [f32],
    accumulate: bool,
    has_softmax: bool,
}

impl Loop for Slopes<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Slopes { tile, shares, x, dx, accumulate, has_softmax } = self;
        let mut room = [0.0; TILE];
        let slopes = &mut room[..dx.len()];
        slopes.copy_from_slice(x.unwrap_or(&*dx));
        let numbers = tile.maxima.iter().zip(&tile.factors).zip(&tile.scales).zip(&tile.counts);
        for ((slope, &share), (((max, factor), scale), &counts)) in slopes.iter_mut().zip(shares).zip(numbers) {
            let softmax = if has_softmax { exp(*slope - max) * factor } else { 0.0 };
            let value = (softmax - share as f32) * scale;
            *slope = if counts { value } else { 0.0 };
        }
        for (dx, slope) in dx.iter_mut().zip(slopes) {
            *dx = if accumulate { *dx + *slope } else { *slope };
        }
    }
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

    /// Returns the elements of a tile in a slab of logits: runs of them, each with its first class.
    fn runs(&self, tile: &Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let (classes, inner, start, positions) = (self.classes, self.inner, tile.start, tile.len());
        (0..classes).step_by(if inner == 1 { TILE } else { 1 }).map(move |class| {
            let count = if inner == 1 { TILE.min(classes - class) } else { positions };
            (class, class * inner + start..class * inner + start + count)
        })
    }

    /// Computes the weighted shares of a run of elements: of one class at the positions of the target from `position` on, or of the classes from
    /// `class` on at one position.
    fn shares(&self, position: usize, class: usize, out: &mut [f64]) {
        let (inner, hit, even) = (self.inner, 1.0 - self.smoothing, self.smoothing / self.classes as f64);
        match &self.targets {
            Targets::Classes(labels) if inner == 1 => {
                out.fill(even);
                let own = (labels.get()[position] as usize).checked_sub(class);
                if let Some(own) = own.and_then(|own| out.get_mut(own)) {
                    *own = hit + even;
                }
            }
            Targets::Classes(labels) => {
                let (class, labels) = (class as u32, &labels.get()[position..]);
                let share = |label: u32| if label == class { hit + even } else { even };
                wide(|| out.iter_mut().zip(labels).for_each(|(out, &label)| *out = share(label)));
            }
            Targets::Shares(shares) => {
                let first = (position / inner * self.classes + class) * inner + position % inner;
                let shares = &shares.get()[first..];
                wide(|| out.iter_mut().zip(shares).for_each(|(out, &share)| *out = hit * f64::from(share) + even));
            }
        }
        match &*self.criterion.options.weights {
            [] => {}
            weights if inner == 1 => out.iter_mut().zip(&weights[class..]).for_each(|(out, weight)| *out *= weight),
            weights => out.iter_mut().for_each(|out| *out *= weights[class]),
        }
    }

    /// Returns, for the positions of a tile, the sum of weighted shares times elements, and that of the weighted shares.
    ///
    /// `x` is the slab of logits, whose positions are those of the target from `first` on.
    fn picked(&self, x: &[f32], first: usize, tile: &Range<usize>) -> [[f64; TILE]; 2] {
        let (mut picked, mut masses) = ([0.0; TILE], [0.0; TILE]);
        if let (Targets::Classes(labels), true) = (&self.targets, self.smoothing == 0.0) {
            for (i, position) in tile.clone().enumerate() {
                let label = labels.get()[first + position] as usize;
                // Labels were checked before the step, except for ignored ones.
                if label < self.classes {
                    masses[i] = self.weight(label);
                    picked[i] =
                        if masses[i] != 0.0 { masses[i] * f64::from(x[label * self.inner + position]) } else { 0.0 };
                }
            }
            return [picked, masses];
        }
        let mut shares = [0.0; TILE];
        for (class, run) in self.runs(tile) {
            let shares = &mut shares[..run.len()];
            self.shares(first + tile.start, class, shares);
            wide(Pick { shares, x: &x[run], picked: &mut picked, masses: &mut masses });
        }
        if self.inner == 1 {
            for sums in [&mut picked, &mut masses] {
                sums[0] = sums.iter().sum();
            }
        }
        [picked, masses]
    }

    /// Returns the sum of the terms of a tile, and the numbers for its gradient, which is multiplied by `scale`. See [`picked`](Self::picked).
    fn tile(&self, x: &[f32], first: usize, tile: &Range<usize>, scale: f64) -> (f64, Tile) {
        let has_softmax = self.has_softmax();
        let (maxima, sums) =
            if has_softmax { maxima_and_sums(x, self.inner, tile) } else { ([0.0; TILE], [1.0; TILE]) };
        let [picked, masses] = self.picked(x, first, tile);
        let mut sum = 0.0;
        let mut of = Tile { maxima, factors: [0.0; TILE], scales: [0.0; TILE], counts: [false; TILE] };
        for i in 0..tile.len() {
            let position = first + tile.start + i;
            let label = match &self.targets {
                Targets::Classes(labels) => Some(labels.get()[position]),
                Targets::Shares(_) => None,
            };
            if label.is_some() && label == self.criterion.options.ignored {
                continue;
            }
            let is_class = label.is_none_or(|label| (label as usize) < self.classes);
            let normaliser = if has_softmax { f64::from(maxima[i]) + sums[i].ln() } else { 0.0 };
            let term = if is_class { masses[i] * normaliser - picked[i] } else { f64::NAN };
            let factor = self.weights.of(position);
            sum += term * factor;
            (of.counts[i], of.factors[i]) = (true, (masses[i] / sums[i]) as f32);
            of.scales[i] = (scale * factor) as f32;
        }
        if self.inner == 1 {
            // All elements of the tile are of one position.
            of.maxima = [of.maxima[0]; TILE];
            of.factors = [of.factors[0]; TILE];
            of.scales = [of.scales[0]; TILE];
            of.counts = [of.counts[0]; TILE];
        }
        (sum, of)
    }

    /// Computes the gradients of a tile in a slab of logits, and returns the sum of its terms. See [`tile`](Self::tile).
    fn slopes(
        &self,
        x: Option<&[f32]>,
        (dx, accumulate): (&mut [f32], bool),
        first: usize,
        tile: &Range<usize>,
        scale: f64,
    ) -> f64 {
        let (sum, of) = self.tile(x.unwrap_or(&*dx), first, tile, scale);
        let has_softmax = self.has_softmax();
        let mut shares = [0.0; TILE];
        for (class, run) in self.runs(tile) {
            let shares = &mut shares[..run.len()];
            self.shares(first + tile.start, class, shares);
            let (x, dx) = (x.map(|x| &x[run.clone()]), &mut dx[run]);
            wide(Slopes { tile: &of, shares, x, dx, accumulate, has_softmax });
        }
        sum
    }

    fn has_softmax(&self) -> bool {
        self.criterion.kind != Measure::Nll
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
                    let of_slab = |index: usize| -> f64 {
                        let (x, first) = (&x[index * slab..][..slab], it.place(index * inner));
                        tiles(inner).map(|tile| it.tile(x, first, &tile, scale).0).sum()
                    };
                    range.map(of_slab).sum()
                })
            }
            Logits::Pair(pair, accumulate) => {
                let accumulate = *accumulate;
                let (source, target) = pair.get();
                parallel::pieces(source, target, slab, |index, x, dx| {
                    let first = it.place(index * inner);
                    tiles(inner).map(|tile| it.slopes(x, (&mut *dx, accumulate), first, &tile, scale)).sum()
                })
            }
        };
        loss.put(sum * scale);
    })
}
