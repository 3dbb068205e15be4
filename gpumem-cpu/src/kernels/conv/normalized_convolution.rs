//! A 1x1 convolution and the batch norm after it, computed with the formulas of
//! [`NormalizedConvolution`](gpumem_core::program::ops::NormalizedConvolution).
//!
//! Nothing is computed as a difference of large numbers:
//!
//! * the mean of each channel is subtracted from dy, and from those channels of x in which it is large, a few samples at a time;
//! * a channel of y is *direct* if its variance is small compared with that of its terms. It is recomputed, a few samples at a time. Its statistics
//!   and gradients are sums over it, as in a separate convolution and batch norm. Its root is saved as a negative number, and its saved mean is that
//!   of y computed from the centred x.

use crate::kernels::conv::convolution::correlation;
use crate::kernels::conv::correlation::Correlation;
use crate::kernels::norm::batch_norm::{Running, inverse_root};
use crate::kernels::{Bound, at_least, kernel};
use crate::matrix::{Matrix, MatrixMut, product};
use crate::operands::{Operands, Source, Target, count};
use crate::parallel::{self, grown};
use crate::simd::wide;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::NormalizedConvolution;
use rayon::prelude::*;

/// Floats of the maps that are processed at a time.
const CHUNK: usize = 1 << 21;

/// A channel is direct if its variance is below this share of the summed variances of its terms.
const LEAST_SHARE: f64 = 0.125;

/// The least ratio of a channel's squared mean to its variance for which the mean is subtracted from x. Below it, the subtraction would add rounding
/// errors without a benefit.
const FAR: f64 = 4.0;

/// Numbers of channels, and elements of maps.
#[derive(Clone, Copy)]
struct Lengths {
    ins: usize,
    outs: usize,
    area: usize,
    /// The batch times the pixels.
    samples: f64,
    x: usize,
    y: usize,
    /// Samples that are processed at a time.
    chunk: usize,
}

impl Lengths {
    fn new(op: &NormalizedConvolution, batch: u64) -> Lengths {
        let [height, width] = op.size;
        let map = |channels: u64| count(&[batch, channels, height, width]);
        let (ins, outs, area) = (count(&[op.in_channels]), count(&[op.out_channels]), count(&op.size));
        let samples = count(&[batch, height, width]) as f64;
        let of_sample = (ins + outs).saturating_mul(area).max(1);
        let chunk = (CHUNK / of_sample).clamp(1, count(&[batch]).max(1));
        Lengths { ins, outs, area, samples, x: map(op.in_channels), y: map(op.out_channels), chunk }
    }

    /// Returns the elements of a chunk with this many channels.
    fn of_chunk(&self, channels: usize) -> usize {
        self.chunk * channels * self.area
    }
}

/// Passes over x, with the mean of each channel subtracted.
struct Centered {
    lengths: Lengths,
    /// The convolution from x to as many channels. The next field is that from x to the channels of y.
    own: Correlation,
    map: Correlation,
    /// The number that is subtracted from each channel of x, its centre. The next field is the channel's mean after that.
    centers: Vec<f32>,
    rests: Vec<f64>,
    /// Direct channels of y. The next fields are their rows of the weight, and their means.
    direct: Vec<usize>,
    rows: Vec<f32>,
    means: Vec<f32>,
}

impl Centered {
    fn new(op: &NormalizedConvolution, batch: u64) -> Result<Centered, Error> {
        let lengths = Lengths::new(op, batch);
        let of_chunk = |ins, outs| correlation(&op.convolution(ins, outs, false), lengths.chunk as u64);
        let own = of_chunk(op.in_channels, op.in_channels)?;
        let map = of_chunk(op.in_channels, op.out_channels)?;
        let (centers, rests) = (vec![0.0; lengths.ins], vec![0.0; lengths.ins]);
        let (direct, rows, means) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Centered { lengths, own, map, centers, rests, direct, rows, means })
    }

    /// Computes the means of x, and chooses those that are subtracted because they are far from 0.
    fn find_centers(&mut self, x: &[f32]) {
        let Lengths { ins, area, samples, .. } = self.lengths;
        self.centers.par_iter_mut().zip(self.rests.par_iter_mut()).enumerate().for_each(|(channel, (center, rest))| {
            let mean = channel_sum(x, ins, area, channel, f64::from) / samples;
            let square = channel_sum(x, ins, area, channel, |x| f64::from(x) * f64::from(x)) / samples;
            let is_far = mean * mean > FAR * (square - mean * mean);
            *center = if is_far { mean as f32 } else { 0.0 };
            *rest = mean - f64::from(*center);
        });
    }

    /// Finds the direct channels, which are those with a negative root.
    fn find_direct(&mut self, statistics: &[f32], weight: &[f32]) {
        let ins = self.lengths.ins;
        let (means, roots) = statistics.split_at(self.lengths.outs);
        self.direct.clear();
        self.rows.clear();
        self.means.clear();
        for (channel, _) in roots.iter().enumerate().filter(|(_, root)| root.is_sign_negative()) {
            let row = &weight[channel * ins..][..ins];
            self.direct.push(channel);
            self.rows.extend_from_slice(row);
            self.means.push(means[channel]);
        }
    }

    /// Returns the convolution from x to the direct channels.
    fn direct_map(&self) -> Correlation {
        self.map.with_positions(self.direct.len())
    }

    /// Copies `x`, with the centres of its channels subtracted.
    fn center(&self, x: &[f32], to: &mut [f32]) {
        center(x, &self.centers, self.lengths.area, to);
    }

    /// True if the statistics of a channel are computed from y itself.
    fn is_direct(&self, channel: usize) -> bool {
        self.direct.binary_search(&channel).is_ok()
    }
}

/// Sums a function over a channel of a map.
fn channel_sum(map: &[f32], channels: usize, area: usize, channel: usize, f: impl Fn(f32) -> f64 + Copy) -> f64 {
    map.chunks_exact(area).skip(channel).step_by(channels).map(|plane| parallel::sum(plane, f)).sum()
}

/// Copies `map`, with a number subtracted from each of its channels.
fn center(map: &[f32], centers: &[f32], area: usize, to: &mut [f32]) {
    parallel::pieces(Some(map), to, area, |plane, from, to| {
        let center = centers[plane % centers.len()];
        wide(|| to.iter_mut().zip(from.unwrap_or_default()).for_each(|(to, &x)| *to = x - center));
        0.0
    });
}

/// Sums `term(y, other)` over the planes of some channels. `picked` are their indices in `others`, which has `all` channels.
fn sum_each(
    (y, others): (&[f32], &[f32]),
    (picked, all): (&[usize], usize),
    area: usize,
    sums: &mut [f64],
    term: impl Fn(usize, f32, f32) -> f64 + Sync,
) {
    sums.par_iter_mut().enumerate().for_each(|(at, sum)| {
        let own = y.chunks_exact(area).skip(at).step_by(picked.len());
        let others = others.chunks_exact(area).skip(picked[at]).step_by(all);
        *sum += own
            .zip(others)
            .map(|(y, other)| parallel::sum_of_pairs(y, other, |y, other| term(at, y, other)))
            .sum::<f64>();
    });
}

fn dot<T: Copy + Into<f64>>(a: &[f32], b: &[T]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * b.into()).sum()
}

/// Computes `y` from `x`.
///
/// In training, the first pass computes and saves the statistics of the batch, and a recomputation reads them. Inference uses the running statistics.
pub(in crate::kernels) fn forward(op: &NormalizedConvolution, operands: &mut Operands<'_>) -> Bound {
    if !operands.training() {
        return evaluation(op, operands);
    }
    let is_known = operands.reads(Slot::Saved(NormalizedConvolution::STATISTICS));
    if is_known { again(op, operands) } else { first(op, operands) }
}

/// Operands of the output, other than x.
struct Output {
    weight: Source,
    factors: Option<Source>,
    shifts: Option<Source>,
    scaled: Target,
    added: Target,
    y: Target,
}

impl Output {
    fn of(op: &NormalizedConvolution, operands: &mut Operands<'_>, lengths: &Lengths) -> Result<Output, Error> {
        let Lengths { ins, outs, .. } = *lengths;
        Ok(Output {
            weight: operands.source(Slot::Input(1), outs * ins)?,
            factors: operands.source_if(op.affine, Slot::Input(2), outs)?,
            shifts: operands.source_if(op.affine, Slot::Input(3), outs)?,
            scaled: operands.target(Slot::Scratch(NormalizedConvolution::WEIGHT), outs * ins)?,
            added: operands.target(Slot::Scratch(NormalizedConvolution::SUMMANDS), outs)?,
            y: operands.target(Slot::Output, lengths.y)?,
        })
    }

    fn shift(&self, channel: usize) -> f32 {
        self.shifts.as_ref().map_or(0.0, |shifts| shifts.get()[channel])
    }

    /// Computes y. Direct channels are convolved with the unscaled weight, and then normalised.
    fn make(&mut self, x: &[f32], roots: &[f32], work: &Centered, scratch: &mut Vec<f32>, planes: &mut Vec<f32>) {
        let Lengths { ins, outs, area, .. } = work.lengths;
        let scale_of = |channel: usize| roots[channel].abs() * factor(self.factors.as_ref(), channel);
        let scaled = self.scaled.get();
        scale(scaled, self.weight.get(), ins, |channel| if work.is_direct(channel) { 1.0 } else { scale_of(channel) });
        let shift = |channel: usize| self.shifts.as_ref().map_or(0.0, |shifts| shifts.get()[channel]);
        for (channel, added) in self.added.get().iter_mut().enumerate() {
            let mean = dot(&scaled[channel * ins..][..ins], &work.rests);
            *added = if work.is_direct(channel) { 0.0 } else { (f64::from(shift(channel)) - mean) as f32 };
        }
        let (scaled, added) = (&*scaled, &*self.added.get());
        let [from, to] = [ins, outs].map(|channels| work.lengths.of_chunk(channels));
        let planes = grown(planes, from);
        for (x, y) in x.chunks(from).zip(self.y.get().chunks_mut(to)) {
            let centered = &mut planes[..x.len()];
            work.center(x, centered);
            work.map.gather(centered, scaled, Some(added), y, false, scratch);
            if work.direct.is_empty() {
                continue;
            }
            y.par_chunks_mut(area).enumerate().for_each(|(plane, y)| {
                let channel = plane % outs;
                let Ok(at) = work.direct.binary_search(&channel) else { return };
                let (mean, scale, shift) = (work.means[at], scale_of(channel), shift(channel));
                wide(|| y.iter_mut().for_each(|y| *y = (*y - mean) * scale + shift));
            });
        }
    }
}

fn first(op: &NormalizedConvolution, operands: &mut Operands<'_>) -> Bound {
    let mut work = Centered::new(op, operands.batch())?;
    let lengths = work.lengths;
    let Lengths { ins, outs, .. } = lengths;
    let x = operands.source(Slot::Input(0), lengths.x)?;
    let mut output = Output::of(op, operands, &lengths)?;
    let mut statistics = operands.target(Slot::Saved(NormalizedConvolution::STATISTICS), 2 * outs)?;
    let mut totals = operands.target(Slot::Saved(NormalizedConvolution::TOTALS), ins)?;
    let mut squares = operands.target(Slot::Saved(NormalizedConvolution::SQUARES), ins * ins)?;
    let mut running = Running::of(operands, outs, op.momentum)?;
    let eps = op.eps;
    // For each channel, the mean of y computed from the centred x, and the variance.
    let mut all = vec![[0.0; 2]; outs];
    kernel(move |frame| {
        let x = x.get();
        work.find_centers(x);
        let mean = |channel: usize| f64::from(work.centers[channel]) + work.rests[channel];
        totals.get().iter_mut().enumerate().for_each(|(at, total)| *total = (mean(at) * lengths.samples) as f32);
        multiply_with_itself(x, &work, squares.get(), frame.scratch, frame.planes);
        let (weight, statistics) = (output.weight.get(), statistics.get());
        let (spread, covariance) = spread(weight, squares.get(), &work, frame.planes);
        for (channel, found) in all.iter_mut().enumerate() {
            let row = &weight[channel * ins..][..ins];
            let square = |at: usize| f64::from(row[at]).powi(2) * f64::from(covariance[at * ins + at]);
            let variance = dot(row, &spread[channel * ins..][..ins]);
            let is_direct = variance < LEAST_SHARE * (0..ins).map(square).sum::<f64>();
            *found = [dot(row, &work.rests), variance];
            (statistics[channel], statistics[outs + channel]) = (found[0] as f32, if is_direct { -1.0 } else { 1.0 });
        }
        work.find_direct(statistics, weight);
        direct_statistics(x, &work, &mut all, frame.scratch, frame.planes);
        for (channel, &[mean, variance]) in all.iter().enumerate() {
            let variance = at_least(0.0, variance);
            let whole = mean + dot(&weight[channel * ins..][..ins], &work.centers);
            if let Some(running) = &mut running {
                running.blend(channel, whole, variance, lengths.samples);
            }
            let root = &mut statistics[outs + channel];
            *root = inverse_root(variance, eps).copysign(*root);
            statistics[channel] = if statistics[outs + channel].is_sign_negative() { mean } else { whole } as f32;
        }
        work.find_direct(statistics, weight);
        let roots = &statistics[outs..];
        output.make(x, roots, &work, frame.scratch, frame.planes);
    })
}

/// Computes the sums of `x x^T` for the centred x.
fn multiply_with_itself(
    x: &[f32],
    work: &Centered,
    squares: &mut [f32],
    scratch: &mut Vec<f32>,
    planes: &mut Vec<f32>,
) {
    let from = work.lengths.of_chunk(work.lengths.ins);
    let planes = grown(planes, from);
    for (number, x) in x.chunks(from).enumerate() {
        let centered = &mut planes[..x.len()];
        work.center(x, centered);
        work.own.weigh(centered, centered, squares, number > 0, scratch);
    }
}

/// Computes means and variances of direct channels from y itself. Their means in `all` are approximate before.
fn direct_statistics(x: &[f32], work: &Centered, all: &mut [[f64; 2]], scratch: &mut Vec<f32>, planes: &mut Vec<f32>) {
    let count = work.direct.len();
    if count == 0 {
        return;
    }
    let Lengths { ins, area, samples, .. } = work.lengths;
    let map = work.direct_map();
    let mut sums = vec![[0.0; 2]; count];
    let from = work.lengths.of_chunk(ins);
    let (centered, y) = grown(planes, from + work.lengths.of_chunk(count)).split_at_mut(from);
    for x in x.chunks(from) {
        let (centered, y) = (&mut centered[..x.len()], &mut y[..x.len() / ins * count]);
        work.center(x, centered);
        map.gather(centered, &work.rows, None, y, false, scratch);
        sums.par_iter_mut().enumerate().for_each(|(at, [sum, squares])| {
            let mean = all[work.direct[at]][0];
            for plane in y.chunks_exact(area).skip(at).step_by(count) {
                *sum += parallel::sum(plane, |y| f64::from(y) - mean);
                *squares += parallel::sum(plane, |y| (f64::from(y) - mean) * (f64::from(y) - mean));
            }
        });
    }
    for (&channel, [sum, squares]) in work.direct.iter().zip(sums) {
        let rest = sum / samples;
        all[channel] = [all[channel][0] + rest, squares / samples - rest * rest];
    }
}

/// Returns the weight times the covariance of x, and that covariance. `squares` are the sums of products of the centred x.
fn spread<'b>(weight: &[f32], squares: &[f32], work: &Centered, buffer: &'b mut Vec<f32>) -> (&'b [f32], &'b [f32]) {
    let Lengths { ins, outs, samples, .. } = work.lengths;
    let (spread, covariance) = grown(buffer, (outs + ins) * ins).split_at_mut(outs * ins);
    for (at, (to, &sum)) in covariance.iter_mut().zip(squares).enumerate() {
        *to = (f64::from(sum) / samples - work.rests[at / ins] * work.rests[at % ins]) as f32;
    }
    let rows = Matrix::new(weight, outs, ins, ins);
    product(MatrixMut::new(spread, outs, ins, ins), rows, Matrix::new(covariance, ins, ins, ins), 1.0, false);
    (spread, covariance)
}

fn factor(factors: Option<&Source>, channel: usize) -> f32 {
    factors.map_or(1.0, |factors| factors.get()[channel])
}

/// Multiplies each row of the weight by `by(channel)`.
fn scale(scaled: &mut [f32], weight: &[f32], ins: usize, by: impl Fn(usize) -> f32) {
    for (channel, (to, from)) in scaled.chunks_exact_mut(ins).zip(weight.chunks_exact(ins)).enumerate() {
        let by = by(channel);
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = by * from);
    }
}

/// Recomputes y from saved statistics.
fn again(op: &NormalizedConvolution, operands: &mut Operands<'_>) -> Bound {
    let mut work = Centered::new(op, operands.batch())?;
    let lengths = work.lengths;
    let x = operands.source(Slot::Input(0), lengths.x)?;
    let saved = operands.source(Slot::Saved(NormalizedConvolution::STATISTICS), 2 * lengths.outs)?;
    let mut output = Output::of(op, operands, &lengths)?;
    kernel(move |frame| {
        let (x, statistics) = (x.get(), saved.get());
        work.find_centers(x);
        work.find_direct(statistics, output.weight.get());
        let roots = &statistics[lengths.outs..];
        output.make(x, roots, &work, frame.scratch, frame.planes);
    })
}

/// Computes y in inference: a convolution, then a normalisation in place by the running statistics.
fn evaluation(op: &NormalizedConvolution, operands: &mut Operands<'_>) -> Bound {
    let lengths = Lengths::new(op, operands.batch());
    let Lengths { outs, area, .. } = lengths;
    let map = correlation(&op.convolution(op.in_channels, op.out_channels, false), operands.batch())?;
    let x = operands.source(Slot::Input(0), lengths.x)?;
    let mean = operands.source(Slot::Buffer(0), outs)?;
    let variance = operands.source(Slot::Buffer(1), outs)?;
    let mut output = Output::of(op, operands, &lengths)?;
    let eps = op.eps;
    let mut rules = vec![[0f32; 3]; outs];
    kernel(move |frame| {
        map.gather(x.get(), output.weight.get(), None, output.y.get(), false, frame.scratch);
        for (channel, rule) in rules.iter_mut().enumerate() {
            let root = inverse_root(f64::from(variance.get()[channel]), eps);
            *rule = [mean.get()[channel], root * factor(output.factors.as_ref(), channel), output.shift(channel)];
        }
        output.y.get().par_chunks_mut(area).enumerate().for_each(|(plane, y)| {
            let [mean, scale, shift] = rules[plane % outs];
            wide(|| y.iter_mut().for_each(|y| *y = (*y - mean) * scale + shift));
        });
    })
}

/// Computes the gradients that the operation writes.
pub(in crate::kernels) fn backward(op: &NormalizedConvolution, operands: &mut Operands<'_>) -> Bound {
    let mut work = Centered::new(op, operands.batch())?;
    let lengths = work.lengths;
    let Lengths { ins, outs, area, samples, .. } = lengths;
    let dy = operands.source(Slot::Gradient, lengths.y)?;
    let x = operands.source(Slot::Input(0), lengths.x)?;
    let weight = operands.source(Slot::Input(1), outs * ins)?;
    let factors = operands.source_if(op.affine, Slot::Input(2), outs)?;
    let statistics = operands.source(Slot::Saved(NormalizedConvolution::STATISTICS), 2 * outs)?;
    let squares = operands.source(Slot::Saved(NormalizedConvolution::SQUARES), ins * ins)?;
    let mut scaled = operands.target(Slot::Scratch(NormalizedConvolution::WEIGHT), outs * ins)?;
    let mut added = operands.target(Slot::Scratch(NormalizedConvolution::SUMMANDS), ins)?;
    let mut means = operands.target(Slot::Scratch(NormalizedConvolution::SUMS), outs)?;
    let mut products = operands.target(Slot::Scratch(NormalizedConvolution::PRODUCTS), outs * ins)?;
    let mut matrix = operands.target(Slot::Scratch(NormalizedConvolution::MATRIX), ins * ins)?;
    let mut dx = operands.gradient(Slot::InputGradient(0), lengths.x)?;
    let mut weight_gradient = operands.gradient(Slot::InputGradient(1), outs * ins)?;
    let mut factor_gradient = operands.gradient(Slot::InputGradient(2), outs)?;
    let mut summand_gradient = operands.gradient(Slot::InputGradient(3), outs)?;
    let mut along: Vec<f64> = Vec::new();
    let mut of_direct: Vec<f32> = Vec::new();
    let mut rules: Vec<[f64; 2]> = Vec::new();
    kernel(move |frame| {
        let (dy, x, weight, roots) = (dy.get(), x.get(), weight.get(), &statistics.get()[outs..]);
        let (products, means) = (products.get(), means.get());
        work.find_centers(x);
        work.find_direct(statistics.get(), weight);
        means.par_iter_mut().enumerate().for_each(|(channel, mean)| {
            *mean = (channel_sum(dy, outs, area, channel, f64::from) / samples) as f32;
        });
        if let Some(out) = &mut summand_gradient {
            for channel in 0..outs {
                out.put(channel, channel_sum(dy, outs, area, channel, f64::from) as f32);
            }
        }
        along.clear();
        along.resize(work.direct.len(), 0.0);
        let pass = Pass { dy, x, means, work: &work };
        pass.sum(products, &mut along, frame.scratch, frame.planes);
        let scale_of = |channel: usize| roots[channel].abs() * factor(factors.as_ref(), channel);
        let (spread, _) = spread(weight, squares.get(), &work, frame.planes);
        for (channel, root) in roots.iter().enumerate() {
            let own = channel * ins..(channel + 1) * ins;
            let root = f64::from(root.abs());
            let found = work.direct.binary_search(&channel);
            let of_factor =
                root * found.map_or_else(|_| dot(&weight[own.clone()], &products[own.clone()]), |at| along[at]);
            if let Some(out) = &mut factor_gradient {
                out.put(channel, of_factor as f32);
            }
            if found.is_ok() {
                products[own].fill(0.0);
                continue;
            }
            let (scale, turned) = (f64::from(scale_of(channel)), of_factor * root);
            for at in own {
                if let Some(out) = &mut weight_gradient {
                    out.put(at, (scale * (f64::from(products[at]) - turned * f64::from(spread[at]))) as f32);
                }
                // The factors of the matrix M replace the sums.
                products[at] = (-scale * turned / samples * f64::from(weight[at])) as f32;
            }
        }
        let (matrix, added, scaled) = (matrix.get(), added.get(), scaled.get());
        let has_direct = !work.direct.is_empty() && weight_gradient.is_some();
        if dx.is_none() && !has_direct {
            return;
        }
        scale(scaled, weight, ins, |channel| if work.is_direct(channel) { 0.0 } else { scale_of(channel) });
        let (rows, columns) = (Matrix::new(weight, outs, ins, ins), Matrix::new(products, outs, ins, ins));
        product(MatrixMut::new(matrix, ins, ins, ins), rows.t(), columns, 1.0, false);
        for (channel, added) in added.iter_mut().enumerate() {
            *added = -dot(&matrix[channel * ins..][..ins], &work.rests) as f32;
        }
        rules.clear();
        rules.extend(work.direct.iter().zip(&along).map(|(&channel, along)| {
            let root = f64::from(roots[channel]);
            [f64::from(scale_of(channel)), root * root * along / samples]
        }));
        grown(&mut of_direct, work.direct.len() * ins).fill(0.0);
        let to = dx.as_mut().map(|dx| (dx.target.get(), dx.accumulate));
        pass.spread_back(
            &Back { matrix, added, scaled, rules: &rules },
            to,
            &mut of_direct,
            frame.scratch,
            frame.planes,
        );
        if let Some(out) = &mut weight_gradient {
            for (&channel, row) in work.direct.iter().zip(of_direct.chunks_exact(ins)) {
                row.iter().enumerate().for_each(|(at, &gradient)| out.put(channel * ins + at, gradient));
            }
        }
    })
}

/// Passes over dy, with the means of its channels subtracted, and the centred x.
struct Pass<'a> {
    dy: &'a [f32],
    x: &'a [f32],
    /// The means of dy.
    means: &'a [f32],
    work: &'a Centered,
}

/// Operands of the gradient of x.
struct Back<'a> {
    matrix: &'a [f32],
    added: &'a [f32],
    scaled: &'a [f32],
    /// The scale of each direct channel, and the factor of `y - mean` in the term that is subtracted from dy.
    rules: &'a [[f64; 2]],
}

impl Pass<'_> {
    /// Calls `each` for each chunk, with its index, the centred x and dy, and scratch memory for the direct channels of y.
    fn chunks(&self, planes: &mut Vec<f32>, mut each: impl FnMut(usize, &[f32], &[f32], &mut [f32])) {
        let lengths = &self.work.lengths;
        let Lengths { ins, outs, area, .. } = *lengths;
        let direct = self.work.direct.len();
        let [from, to, more] = [ins, outs, direct].map(|channels| lengths.of_chunk(channels));
        let (inputs, rest) = grown(planes, from + to + more).split_at_mut(from);
        let (gradients, y) = rest.split_at_mut(to);
        for (number, (x, dy)) in self.x.chunks(from).zip(self.dy.chunks(to)).enumerate() {
            let (inputs, gradients) = (&mut inputs[..x.len()], &mut gradients[..dy.len()]);
            self.work.center(x, inputs);
            center(dy, self.means, area, gradients);
            each(number, inputs, gradients, &mut y[..x.len() / ins * direct]);
        }
    }

    /// Sums `dy x^T`, and `dy y` of the direct channels.
    fn sum(&self, products: &mut [f32], along: &mut [f64], scratch: &mut Vec<f32>, planes: &mut Vec<f32>) {
        let work = self.work;
        let Lengths { outs, area, .. } = work.lengths;
        let direct_map = work.direct_map();
        self.chunks(planes, |number, x, dy, y| {
            work.map.weigh(x, dy, products, number > 0, scratch);
            if work.direct.is_empty() {
                return;
            }
            direct_map.gather(x, &work.rows, None, y, false, scratch);
            let term = |at: usize, y: f32, dy: f32| f64::from(dy) * (f64::from(y) - f64::from(work.means[at]));
            sum_each((y, dy), (&work.direct, outs), area, along, term);
        });
    }

    /// Writes or adds to the gradient of x, and sums the gradients of the direct channels' rows of the weight.
    fn spread_back(
        &self,
        back: &Back<'_>,
        mut to: Option<(&mut [f32], bool)>,
        of_direct: &mut [f32],
        scratch: &mut Vec<f32>,
        planes: &mut Vec<f32>,
    ) {
        let work = self.work;
        let Lengths { ins, outs, area, .. } = work.lengths;
        let (from, direct) = (work.lengths.of_chunk(ins), work.direct.len());
        let direct_map = work.direct_map();
        let of_direct = &mut of_direct[..direct * ins];
        self.chunks(planes, |number, x, dy, y| {
            let mut to = to.as_mut().map(|(to, add)| (&mut to[number * from..][..x.len()], *add));
            if let Some((to, add)) = &mut to {
                work.own.gather(x, back.matrix, Some(back.added), to, *add, scratch);
                work.map.scatter(dy, back.scaled, None, to, true, scratch);
            }
            if direct == 0 {
                return;
            }
            direct_map.gather(x, &work.rows, None, y, false, scratch);
            y.par_chunks_mut(area).enumerate().for_each(|(plane, y)| {
                let (sample, at) = (plane / direct, plane % direct);
                let dy = &dy[(sample * outs + work.direct[at]) * area..][..area];
                let ([scale, share], mean) = (back.rules[at].map(|rule| rule as f32), work.means[at]);
                wide(|| y.iter_mut().zip(dy).for_each(|(y, &dy)| *y = scale * (dy - (*y - mean) * share)));
            });
            direct_map.weigh(x, y, of_direct, number > 0, scratch);
            if let Some((to, _)) = &mut to {
                direct_map.scatter(y, &work.rows, None, to, true, scratch);
            }
        });
    }
}
