//! A convolution of one pixel and the normalisation behind it, by the formulas of
//! [`NormalizedConvolution`](gpumem_core::program::ops::NormalizedConvolution).

use super::batch_norm::{Running, inverse_root};
use super::convolution::correlation;
use super::correlation::channel_sums;
use super::{Bound, at_least, kernel};
use crate::matrix::{Matrix, MatrixMut, product};
use crate::operands::{Operands, Source, count};
use crate::parallel::grown;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::NormalizedConvolution;

/// Numbers of channels, and lengths of maps.
struct Lengths {
    ins: usize,
    outs: usize,
    area: usize,
    /// Batch times pixels.
    samples: f64,
    x: usize,
    y: usize,
}

impl Lengths {
    fn new(op: &NormalizedConvolution, batch: u64) -> Lengths {
        let [height, width] = op.size;
        let map = |channels: u64| count(&[batch, channels, height, width]);
        let (ins, outs) = (count(&[op.in_channels]), count(&[op.out_channels]));
        let samples = count(&[batch, height, width]) as f64;
        Lengths { ins, outs, area: count(&op.size), samples, x: map(op.in_channels), y: map(op.out_channels) }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// `y` from `x`: in training the first time by the batch's statistics, which are saved, and again from those; else by the running ones.
pub(super) fn forward(op: &NormalizedConvolution, operands: &mut Operands<'_>) -> Bound {
    let is_known = !operands.training() || operands.reads(Slot::Saved(NormalizedConvolution::STATISTICS));
    if is_known { known(op, operands) } else { first(op, operands) }
}

fn first(op: &NormalizedConvolution, operands: &mut Operands<'_>) -> Bound {
    let lengths = Lengths::new(op, operands.batch());
    let Lengths { ins, outs, .. } = lengths;
    let own = correlation(&op.convolution(op.in_channels, op.in_channels, false), operands.batch())?;
    let map = correlation(&op.convolution(op.in_channels, op.out_channels, true), operands.batch())?;
    let x = operands.source(Slot::Input(0), lengths.x)?;
    let weight = operands.source(Slot::Input(1), outs * ins)?;
    let factors = operands.source_if(op.affine, Slot::Input(2), outs)?;
    let shifts = operands.source_if(op.affine, Slot::Input(3), outs)?;
    let mut y = operands.target(Slot::Output, lengths.y)?;
    let mut statistics = operands.target(Slot::Saved(NormalizedConvolution::STATISTICS), 2 * outs)?;
    let mut totals = operands.target(Slot::Saved(NormalizedConvolution::TOTALS), ins)?;
    let mut squares = operands.target(Slot::Saved(NormalizedConvolution::SQUARES), ins * ins)?;
    let mut scaled = operands.target(Slot::Scratch(NormalizedConvolution::WEIGHT), outs * ins)?;
    let mut added = operands.target(Slot::Scratch(NormalizedConvolution::SUMMANDS), outs)?;
    let mut running = Running::of(operands, outs, op.momentum)?;
    let eps = op.eps;
    kernel(move |frame| {
        let (x, weight, squares) = (x.get(), weight.get(), squares.get());
        let totals = totals.get();
        own.weigh(x, x, squares, false, frame.scratch);
        channel_sums(x, lengths.area, totals, false);
        let spread = spread(weight, squares, totals, &lengths, frame.planes);
        let (of_means, roots) = statistics.get().split_at_mut(outs);
        let (scaled, added) = (scaled.get(), added.get());
        for channel in 0..outs {
            let own = channel * ins..(channel + 1) * ins;
            let mean = dot(&weight[own.clone()], totals) / lengths.samples;
            // Rounding may leave less than nothing.
            let variance = at_least(0.0, dot(&weight[own.clone()], &spread[own]));
            if let Some(running) = &mut running {
                running.blend(channel, mean, variance, lengths.samples);
            }
            (of_means[channel], roots[channel]) = (mean as f32, inverse_root(variance, eps));
        }
        scale(scaled, weight, ins, |channel| roots[channel] * factor(factors.as_ref(), channel));
        summands(added, shifts.as_ref(), |channel| dot(&scaled[channel * ins..][..ins], totals) / lengths.samples);
        map.gather(x, scaled, Some(added), y.get(), false, frame.scratch);
    })
}

/// The weight times the covariance of what comes in, of which these are the sums of products and of channels.
fn spread<'b>(
    weight: &[f32],
    squares: &[f32],
    totals: &[f32],
    lengths: &Lengths,
    buffer: &'b mut Vec<f32>,
) -> &'b [f32] {
    let Lengths { ins, outs, samples, .. } = *lengths;
    let (spread, covariance) = grown(buffer, (outs + ins) * ins).split_at_mut(outs * ins);
    for (at, (to, &sum)) in covariance.iter_mut().zip(squares).enumerate() {
        let mean = |channel: usize| f64::from(totals[channel]) / samples;
        *to = (f64::from(sum) / samples - mean(at / ins) * mean(at % ins)) as f32;
    }
    let rows = Matrix::new(weight, outs, ins, ins);
    product(MatrixMut::new(spread, outs, ins, ins), rows, Matrix::new(covariance, ins, ins, ins), 1.0, false);
    spread
}

fn factor(factors: Option<&Source>, channel: usize) -> f32 {
    factors.map_or(1.0, |factors| factors.get()[channel])
}

/// What is multiplied with: the weight, each row as often as `by` says.
fn scale(scaled: &mut [f32], weight: &[f32], ins: usize, by: impl Fn(usize) -> f32) {
    for (channel, (to, from)) in scaled.chunks_exact_mut(ins).zip(weight.chunks_exact(ins)).enumerate() {
        let by = by(channel);
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = by * from);
    }
}

/// What is added to each output channel that would have this mean: as what is multiplied with is rounded, so that it has none but its summand.
fn summands(added: &mut [f32], summands: Option<&Source>, mean: impl Fn(usize) -> f64) {
    for (channel, added) in added.iter_mut().enumerate() {
        *added = (summands.map_or(0.0, |summands| f64::from(summands.get()[channel])) - mean(channel)) as f32;
    }
}

/// From statistics that are known: those that were saved, or without training the running ones.
fn known(op: &NormalizedConvolution, operands: &mut Operands<'_>) -> Bound {
    let lengths = Lengths::new(op, operands.batch());
    let Lengths { ins, outs, .. } = lengths;
    let map = correlation(&op.convolution(op.in_channels, op.out_channels, true), operands.batch())?;
    let x = operands.source(Slot::Input(0), lengths.x)?;
    let weight = operands.source(Slot::Input(1), outs * ins)?;
    let factors = operands.source_if(op.affine, Slot::Input(2), outs)?;
    let shifts = operands.source_if(op.affine, Slot::Input(3), outs)?;
    let is_saved = operands.training();
    let saved = operands.source_if(is_saved, Slot::Saved(NormalizedConvolution::STATISTICS), 2 * outs)?;
    let totals = operands.source_if(is_saved, Slot::Saved(NormalizedConvolution::TOTALS), ins)?;
    let [mean, variance] = [0, 1].map(|index| operands.source_if(!is_saved, Slot::Buffer(index), outs));
    let running = mean?.zip(variance?);
    let mut y = operands.target(Slot::Output, lengths.y)?;
    let mut scaled = operands.target(Slot::Scratch(NormalizedConvolution::WEIGHT), outs * ins)?;
    let mut added = operands.target(Slot::Scratch(NormalizedConvolution::SUMMANDS), outs)?;
    let eps = op.eps;
    kernel(move |frame| {
        let (scaled, added) = (scaled.get(), added.get());
        let root = |channel: usize| match (&saved, &running) {
            (Some(saved), _) => saved.get()[outs + channel],
            (None, Some((_, variance))) => inverse_root(f64::from(variance.get()[channel]), eps),
            (None, None) => 1.0,
        };
        let by = |channel: usize| root(channel) * factor(factors.as_ref(), channel);
        scale(scaled, weight.get(), ins, by);
        summands(added, shifts.as_ref(), |channel| match (&totals, &running) {
            (Some(totals), _) => dot(&scaled[channel * ins..][..ins], totals.get()) / lengths.samples,
            (None, Some((mean, _))) => f64::from(by(channel)) * f64::from(mean.get()[channel]),
            (None, None) => 0.0,
        });
        map.gather(x.get(), scaled, Some(added), y.get(), false, frame.scratch);
    })
}

/// The gradients that the operation writes.
pub(super) fn backward(op: &NormalizedConvolution, operands: &mut Operands<'_>) -> Bound {
    let lengths = Lengths::new(op, operands.batch());
    let Lengths { ins, outs, .. } = lengths;
    let own = correlation(&op.convolution(op.in_channels, op.in_channels, true), operands.batch())?;
    let map = correlation(&op.convolution(op.in_channels, op.out_channels, false), operands.batch())?;
    let dy = operands.source(Slot::Gradient, lengths.y)?;
    let x = operands.source(Slot::Input(0), lengths.x)?;
    let weight = operands.source(Slot::Input(1), outs * ins)?;
    let factors = operands.source_if(op.affine, Slot::Input(2), outs)?;
    let statistics = operands.source(Slot::Saved(NormalizedConvolution::STATISTICS), 2 * outs)?;
    let totals = operands.source(Slot::Saved(NormalizedConvolution::TOTALS), ins)?;
    let squares = operands.source(Slot::Saved(NormalizedConvolution::SQUARES), ins * ins)?;
    let mut scaled = operands.target(Slot::Scratch(NormalizedConvolution::WEIGHT), outs * ins)?;
    let mut added = operands.target(Slot::Scratch(NormalizedConvolution::SUMMANDS), ins)?;
    let mut sums = operands.target(Slot::Scratch(NormalizedConvolution::SUMS), outs)?;
    let mut products = operands.target(Slot::Scratch(NormalizedConvolution::PRODUCTS), outs * ins)?;
    let mut matrix = operands.target(Slot::Scratch(NormalizedConvolution::MATRIX), ins * ins)?;
    let mut dx = operands.gradient(Slot::InputGradient(0), lengths.x)?;
    let mut weight_gradient = operands.gradient(Slot::InputGradient(1), outs * ins)?;
    let mut factor_gradient = operands.gradient(Slot::InputGradient(2), outs)?;
    let mut summand_gradient = operands.gradient(Slot::InputGradient(3), outs)?;
    kernel(move |frame| {
        let (dy, x, weight, totals) = (dy.get(), x.get(), weight.get(), totals.get());
        let (of_means, roots) = statistics.get().split_at(outs);
        let (products, sums) = (products.get(), sums.get());
        map.weigh(x, dy, products, false, frame.scratch);
        channel_sums(dy, lengths.area, sums, false);
        let spread = spread(weight, squares.get(), totals, &lengths, frame.planes);
        if let Some(out) = &mut summand_gradient {
            sums.iter().enumerate().for_each(|(channel, &sum)| out.put(channel, sum));
        }
        for channel in 0..outs {
            let own = channel * ins..(channel + 1) * ins;
            let (root, sum) = (f64::from(roots[channel]), f64::from(sums[channel]));
            let along = dot(&weight[own.clone()], &products[own.clone()]) - f64::from(of_means[channel]) * sum;
            let of_factor = root * along;
            if let Some(out) = &mut factor_gradient {
                out.put(channel, of_factor as f32);
            }
            let scale = root * f64::from(factor(factors.as_ref(), channel));
            let turned = of_factor * root;
            for at in own {
                if let Some(out) = &mut weight_gradient {
                    let mean = f64::from(totals[at % ins]) / lengths.samples;
                    let gradient = f64::from(products[at]) - sum * mean - turned * f64::from(spread[at]);
                    out.put(at, (scale * gradient) as f32);
                }
                // What M is made of takes the place of the sums.
                products[at] = (-scale * turned / lengths.samples * f64::from(weight[at])) as f32;
            }
        }
        let Some(dx) = &mut dx else { return };
        let (matrix, added, scaled) = (matrix.get(), added.get(), scaled.get());
        scale(scaled, weight, ins, |channel| roots[channel] * factor(factors.as_ref(), channel));
        let (rows, columns) = (Matrix::new(weight, outs, ins, ins), Matrix::new(products, outs, ins, ins));
        product(MatrixMut::new(matrix, ins, ins, ins), rows.t(), columns, 1.0, false);
        for (channel, added) in added.iter_mut().enumerate() {
            let of_sums: f64 = (0..outs).map(|o| f64::from(scaled[o * ins + channel]) * f64::from(sums[o])).sum();
            *added = ((-of_sums - dot(&matrix[channel * ins..][..ins], totals)) / lengths.samples) as f32;
        }
        own.gather(x, matrix, Some(added), dx.target.get(), dx.accumulate, frame.scratch);
        map.scatter(dy, scaled, None, dx.target.get(), true, frame.scratch);
    })
}
