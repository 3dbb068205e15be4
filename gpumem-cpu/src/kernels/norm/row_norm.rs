//! Layer norm, RMS norm and group norm: rows normalised by their own statistics.
//!
//! `y = (x - mean) * rstd * weight + bias`, with mean and biased variance of each row and `rstd = 1 / sqrt(variance + eps)`. If rows are not centred,
//! the mean is 0 and the variance the mean square. A sample has R rows of D elements. Weights and biases repeat after `groups` rows, and `shared`
//! consecutive elements have the same one.
//!
//! Backward, with `n = (x - mean) * rstd`, `g = dy * weight` and means over the row: `dbias = sum of dy`, `dweight = sum of dy * n`,
//! `dx = rstd * (g - mean(g) - n * mean(g * n))`, without `mean(g)` if rows are not centred.

use crate::kernels::norm::batch_norm::inverse_root;
use crate::kernels::norm::rows::{BLOCK, Back, Columns, Forward, Moments};
use crate::kernels::{Bound, kernel};
use crate::operands::{Gradient, Operands, count};
use crate::parallel::{self, GRAIN, with_scratch};
use crate::simd::wide;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Normalize;
use rayon::prelude::*;

/// A function that normalises a row, from its number and its part of `x` and `y`, and returns the mean and `1 / std`.
type RowFn<'a> = dyn Fn(usize, Option<&[f32]>, &mut [f32]) -> (f32, f32) + Sync + 'a;

/// The sizes of a normalisation.
#[derive(Clone, Copy)]
struct Sizes {
    /// Rows of a sample. The next field is the elements of a row.
    rows: usize,
    length: usize,
    center: bool,
    eps: f64,
    groups: usize,
    shared: usize,
    /// Weights of a row.
    own: usize,
}

impl Sizes {
    fn new(op: &Normalize) -> Result<Sizes, Error> {
        if !op.is_sound() {
            return Err(Error::Damaged("a normalisation's rows are no whole groups"));
        }
        let [rows, length, groups, shared] = [op.rows, op.length, op.groups, op.shared].map(|size| count(&[size]));
        Ok(Sizes { rows, length, center: op.center, eps: op.eps, groups, shared, own: length / shared })
    }

    /// Returns the mean and `1 / std` of a row.
    fn statistics(&self, row: &[f32]) -> (f32, f32) {
        let [mean, squares] = wide(Moments { row, center: self.center });
        (mean as f32, inverse_root(squares / row.len() as f64, self.eps))
    }

    /// Normalises the rows of one sample, and saves their statistics.
    ///
    /// The number of its first row counts the rows of the whole batch. There are no `means` if rows are not centred.
    fn save(&self, first: usize, x: Option<&[f32]>, y: &mut [f32], [means, rstds]: [&mut [f32]; 2], one: &RowFn<'_>) {
        let half = rstds.len() / 2;
        if half > 0 && y.len() > GRAIN {
            let (x_left, x_right) = x.map(|x| x.split_at(half * self.length)).unzip();
            let (y_left, y_right) = y.split_at_mut(half * self.length);
            let (means_left, means_right) = means.split_at_mut(half.min(means.len()));
            let (rstds_left, rstds_right) = rstds.split_at_mut(half);
            rayon::join(
                || self.save(first, x_left, y_left, [means_left, rstds_left], one),
                || self.save(first + half, x_right, y_right, [means_right, rstds_right], one),
            );
            return;
        }
        for (index, (y, rstd)) in y.chunks_exact_mut(self.length).zip(rstds).enumerate() {
            let (mean, found) = one(first + index, x.map(|x| &x[index * self.length..][..self.length]), y);
            *rstd = found;
            if let Some(place) = means.get_mut(index) {
                *place = mean;
            }
        }
    }

    /// Returns how many numbers are saved for a sample.
    fn saved(&self) -> usize {
        if self.center { 2 * self.rows } else { self.rows }
    }

    /// Returns the saved mean and `1 / std` of a row, which is counted over the whole batch.
    fn kept(&self, saved: &[f32], row: usize) -> (f32, f32) {
        let sample = &saved[row / self.rows * self.saved()..][..self.saved()];
        let row = row % self.rows;
        if self.center { (sample[row], sample[self.rows + row]) } else { (0.0, sample[row]) }
    }

    /// Applies `y = f(y, parameter)` to a row. `shared` consecutive elements have the same parameter.
    fn with_parameter(&self, y: &mut [f32], parameter: Option<&[f32]>, f: impl Fn(f32, f32) -> f32) {
        match (parameter, self.shared) {
            (None, _) => {}
            (Some(parameter), 1) => wide(|| y.iter_mut().zip(parameter).for_each(|(y, &p)| *y = f(*y, p))),
            (Some(parameter), shared) => {
                for (y, &p) in y.chunks_exact_mut(shared).zip(parameter) {
                    wide(|| y.iter_mut().for_each(|y| *y = f(*y, p)));
                }
            }
        }
    }

    /// Returns the parameters of a row, which is counted over the whole batch.
    fn of_row<'a>(&self, parameter: Option<&'a [f32]>, row: usize) -> Option<&'a [f32]> {
        parameter.map(|all| &all[row % self.groups * self.own..][..self.own])
    }
}

/// Computes `y` from `x` and, in training, the statistics.
pub(in crate::kernels) fn forward(op: &Normalize, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op)?;
    let (batch, parameters) = (operands.batch(), count(&[op.parameters()]));
    let mut pair = operands.pair(Slot::Input(0), Slot::Output, count(&[batch, op.rows, op.length]))?;
    let weight = operands.source_if(op.scale, Slot::Input(1), parameters)?;
    let bias = operands.source_if(op.shift, Slot::Input(2), parameters)?;
    let mut saved = operands.target_if_any(Slot::Saved(0), count(&[batch, op.statistics(), op.rows]))?;
    kernel(move |_| {
        let (source, target) = pair.get();
        let (weight, bias) = (weight.as_ref().map(|w| w.get()), bias.as_ref().map(|b| b.get()));
        let one = |row: usize, x: Option<&[f32]>, y: &mut [f32]| {
            let statistics = sizes.statistics(x.unwrap_or(&*y));
            let [weight, bias] = [weight, bias].map(|parameter| sizes.of_row(parameter, row));
            if sizes.shared == 1 {
                wide(Forward { x, y, statistics, weight, bias });
                return statistics;
            }
            let (mean, rstd) = statistics;
            if let Some(x) = x {
                y.copy_from_slice(x);
            }
            wide(|| y.iter_mut().for_each(|y| *y = (*y - mean) * rstd));
            sizes.with_parameter(y, weight, |y, weight| y * weight);
            sizes.with_parameter(y, bias, |y, bias| y + bias);
            statistics
        };
        let Some(saved) = &mut saved else {
            parallel::pieces(source, target, sizes.length, |row, x, y| {
                one(row, x, y);
                0.0
            });
            return;
        };
        let sample = sizes.rows * sizes.length;
        let each = |(index, (saved, y)): (usize, (&mut [f32], &mut [f32]))| {
            let (means, rstds) = saved.split_at_mut(if sizes.center { sizes.rows } else { 0 });
            let x = source.map(|x| &x[index * sample..][..sample]);
            sizes.save(index * sizes.rows, x, y, [means, rstds], &one);
        };
        let samples = saved.get().par_chunks_mut(sizes.saved()).zip(target.par_chunks_mut(sample));
        samples.enumerate().with_min_len(GRAIN / sample.max(1)).for_each(each);
    })
}

/// Computes `out (+)= sum of f(dy, x, mean, rstd)` over all elements that share a parameter.
fn sum_parameter(
    sizes: &Sizes,
    out: &mut Gradient,
    [dy, x]: [&[f32]; 2],
    saved: &[f32],
    f: impl Fn(f32, f32, f32, f32) -> f64 + Sync,
) {
    let Sizes { groups, shared, own, length, .. } = *sizes;
    let row = groups * length;
    parallel::column_sums(out.target.get(), out.accumulate, dy.len() / row.max(1), |outer, first, sums| {
        let (dy, x) = (&dy[outer * row..][..row], &x[outer * row..][..row]);
        // Each run of columns is inside one row.
        let mut done = 0;
        while done < sums.len() {
            let column = first + done;
            let end = (sums.len() - done).min(own - column % own);
            let (mean, rstd) = sizes.kept(saved, outer * groups + column / own);
            let at = column * shared;
            let sums = &mut sums[done..done + end];
            if shared == 1 {
                let pairs = dy[at..].iter().zip(&x[at..]);
                sums.iter_mut().zip(pairs).for_each(|(sum, (&dy, &x))| *sum += f(dy, x, mean, rstd));
            } else {
                for (sum, at) in sums.iter_mut().zip((at..).step_by(shared)) {
                    let (dy, x) = (&dy[at..at + shared], &x[at..at + shared]);
                    *sum += parallel::sum_of_pairs(dy, x, |dy, x| f(dy, x, mean, rstd));
                }
            }
            done += end;
        }
    });
}

/// Computes the sums of the weight and of the bias in one pass, for rows that all have the same parameters.
fn sum_both(sizes: &Sizes, weight: &mut Gradient, bias: &mut Gradient, [dy, x]: [&[f32]; 2], saved: &[f32]) {
    let accumulates = [weight.accumulate, bias.accumulate];
    let each = |(block, (weight, bias)): (usize, (&mut [f32], &mut [f32]))| {
        let (statistics, length) = (|row: usize| sizes.kept(saved, row), sizes.length);
        let columns = Columns { statistics, length, first: block * BLOCK, count: weight.len(), dy, x };
        let [of_weight, of_bias] = wide(columns);
        parallel::store(weight, accumulates[0], |j| of_weight[j] as f32);
        parallel::store(bias, accumulates[1], |j| of_bias[j] as f32);
    };
    let blocks = weight.target.get().par_chunks_mut(BLOCK).zip(bias.target.get().par_chunks_mut(BLOCK)).enumerate();
    blocks.with_min_len(GRAIN / dy.len().max(1)).for_each(each);
}

/// Computes the gradients that the operation writes. `dx` may overwrite `dy`.
pub(in crate::kernels) fn backward(op: &Normalize, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op)?;
    let (batch, parameters) = (operands.batch(), count(&[op.parameters()]));
    let length = count(&[batch, op.rows, op.length]);
    let input = operands.source(Slot::Input(0), length)?;
    let saved = operands.source(Slot::Saved(0), count(&[batch, op.statistics(), op.rows]))?;
    let flows = operands.writes(Slot::InputGradient(0));
    let weight = operands.source_if(op.scale && flows, Slot::Input(1), parameters)?;
    let mut weight_gradient = operands.gradient(Slot::InputGradient(1), parameters)?;
    let mut bias_gradient = operands.gradient(Slot::InputGradient(2), parameters)?;
    let mut pair = if flows { Some(operands.gradients(0, length)?) } else { None };
    let accumulate = pair.as_ref().is_some_and(|(_, accumulate)| *accumulate);
    let alone = operands.source_if(!flows, Slot::Gradient, length)?;
    kernel(move |_| {
        let (x, saved) = (input.get(), saved.get());
        let (source, target) = match &mut pair {
            Some((pair, _)) => {
                let (source, target) = pair.get();
                (source, Some(target))
            }
            None => (alone.as_ref().map(|alone| alone.get()), None),
        };
        let dy = source.or(target.as_deref()).unwrap_or_default();
        match (&mut weight_gradient, &mut bias_gradient) {
            (Some(weight), Some(bias)) if (sizes.groups, sizes.shared) == (1, 1) => {
                sum_both(&sizes, weight, bias, [dy, x], saved);
            }
            (of_weight, of_bias) => {
                if let Some(out) = of_weight {
                    sum_parameter(&sizes, out, [dy, x], saved, |dy, x, mean, rstd| {
                        f64::from(dy) * f64::from((x - mean) * rstd)
                    });
                }
                if let Some(out) = of_bias {
                    sum_parameter(&sizes, out, [dy, x], saved, |dy, _, _, _| f64::from(dy));
                }
            }
        }
        let Some(target) = target else { return };
        let weight = weight.as_ref().map(|weight| weight.get());
        parallel::pieces(source, target, sizes.length, |row, dy, dx| {
            let statistics = sizes.kept(saved, row);
            let (x, weight) = (&x[row * sizes.length..][..sizes.length], sizes.of_row(weight, row));
            if sizes.shared == 1 {
                wide(Back { center: sizes.center, statistics, x, weight, dy, dx, accumulate });
                return 0.0;
            }
            with_scratch(sizes.length, |g| {
                g.copy_from_slice(dy.unwrap_or(&*dx));
                sizes.with_parameter(g, weight, |dy, weight| dy * weight);
                slope(&sizes, statistics, x, g, dx, accumulate);
            });
            0.0
        });
    })
}

/// Computes `dx` of a row from `g`.
fn slope(sizes: &Sizes, (mean, rstd): (f32, f32), x: &[f32], g: &[f32], dx: &mut [f32], accumulate: bool) {
    let length = x.len() as f64;
    let sum = if sizes.center { (parallel::sum(g, f64::from) / length) as f32 } else { 0.0 };
    let normalised = |g: f32, x: f32| f64::from(g) * f64::from((x - mean) * rstd);
    let product = (parallel::sum_of_pairs(g, x, normalised) / length) as f32;
    let value = |g: f32, x: f32| rstd * (g - sum - (x - mean) * rstd * product);
    let all = dx.iter_mut().zip(g.iter().zip(x));
    if accumulate {
        wide(|| all.for_each(|(dx, (&g, &x))| *dx += value(g, x)));
    } else {
        wide(|| all.for_each(|(dx, (&g, &x))| *dx = value(g, x)));
    }
}
