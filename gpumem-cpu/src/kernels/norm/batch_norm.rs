//! Batch normalisation of feature maps [B, C, H, W]: `y = (x - mean[c]) * rstd[c] * weight[c] + bias[c]` with
//! `rstd = 1 / sqrt(variance + eps)`.
//!
//! In training, mean and biased variance are those of the batch over B, H and W. In inference, and with `eval`, they are the running ones.
//!
//! Backward, with `n = (x - mean) * rstd` and means over B, H and W:
//! `dbias = sum(dy)`, `dweight = sum(dy * n)`, `dx = weight * rstd * (dy - mean(dy) - n * mean(dy * n))`. With `eval` mean and variance are
//! constants, and `dx = weight * rstd * dy`.
//!
//! If ranks synchronise norms, mean and variance are those of the samples of all ranks, and so are the means of the backward pass. Each pass is then
//! two operations: the first sums over the rank's own samples, the second reads the sums of all ranks.

use crate::kernels::elementwise::functions::{self, Scalar, Use};
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Pair, Target, count};
use crate::parallel::{self, grown};
use crate::simd::wide;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::functions::{Function, Kept};
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::{BatchNorm, Pointwise};
use rayon::prelude::*;

/// Returns channel `c` of every sample of a map.
fn planes(map: &[f32], channels: usize, area: usize, c: usize) -> impl Iterator<Item = &[f32]> {
    map.chunks_exact(area).skip(c).step_by(channels)
}

/// Returns the start of a plane in a map of `all` channels. The index `plane` counts only the first `channels` of each sample.
fn place(plane: usize, (channels, all): (usize, usize), area: usize) -> usize {
    (plane / channels * all + plane % channels) * area
}

pub(in crate::kernels) fn forward(op: &BatchNorm, operands: &mut Operands<'_>) -> Bound {
    forward_through(op, operands, |y| y)
}

/// Computes `y` from `x`, with `after` applied to it, and in training the statistics.
///
/// A pass that is recomputed reads saved statistics instead.
pub(in crate::kernels) fn forward_through(
    op: &BatchNorm,
    operands: &mut Operands<'_>,
    after: impl Fn(f32) -> f32 + Copy + Send + Sync + 'static,
) -> Bound {
    if operands.writes(Slot::Sent(0)) {
        return statistics_of_rank(op, operands);
    }
    let channels = count(&[op.channels]);
    let area = count(&op.size);
    let length = count(&[operands.batch(), op.channels, op.size[0], op.size[1]]);
    let (training, eps, momentum) = (operands.training(), op.eps, op.momentum);
    let all = count(&[op.input_channels()]);
    let mut pair = if all == channels {
        operands.pair(Slot::Input(0), Slot::Output, length)?
    } else {
        Pair::Apart(operands.source(Slot::Input(0), length / channels * all)?, operands.target(Slot::Output, length)?)
    };
    let weight = operands.source_if(op.affine, Slot::Input(1), channels)?;
    let bias = operands.source_if(op.affine, Slot::Input(2), channels)?;
    let kept = operands.source_if(operands.reads(Slot::Saved(0)), Slot::Saved(0), 2 * channels)?;
    let mut saved = operands.target_if_any(Slot::Saved(0), 2 * channels)?;
    let by_batch = training && !op.eval;
    let mut running = if by_batch { Running::of(operands, channels, momentum)? } else { None };
    let constant = if by_batch || kept.is_some() {
        None
    } else {
        Some((operands.source(Slot::Buffer(0), channels)?, operands.source(Slot::Buffer(1), channels)?))
    };
    let mut of_ranks = OfRanks::of(operands)?;
    kernel(move |frame| {
        // The mean and 1 / std of each channel, then its biased variance.
        let (statistics, variances) = grown(frame.scratch, 3 * channels).split_at_mut(2 * channels);
        let (means, rstds) = statistics.split_at_mut(channels);
        let (source, target) = pair.get();
        if let Some(kept) = &kept {
            means.copy_from_slice(&kept.get()[..channels]);
            rstds.copy_from_slice(&kept.get()[channels..]);
        } else if let Some((mean, variance)) = &constant {
            means.copy_from_slice(mean.get());
            rstds.iter_mut().zip(variance.get()).for_each(|(rstd, &v)| *rstd = inverse_root(f64::from(v), eps));
        } else {
            let x = source.unwrap_or(&*target);
            let ranks = of_ranks.as_ref().map_or(1, |of_ranks| of_ranks.ranks);
            let of_ranks = of_ranks.as_mut().map(OfRanks::get);
            let samples = (length / channels * ranks) as f64;
            let channel = means.par_iter_mut().zip(rstds.par_iter_mut()).zip(variances.par_iter_mut());
            channel.enumerate().for_each(|(c, ((mean_out, rstd), variance_out))| {
                let (mean, variance) = match &of_ranks {
                    Some(rows) => combined(rows.clone().map(|row| [row[c], row[channels + c]])),
                    None => moments(x, all, area, c),
                };
                (*mean_out, *variance_out, *rstd) = (mean as f32, variance as f32, inverse_root(variance, eps));
            });
            if let Some(running) = &mut running {
                for (channel, (&mean, &variance)) in means.iter().zip(&*variances).enumerate() {
                    running.blend(channel, f64::from(mean), f64::from(variance), samples);
                }
            }
        }
        if let Some(saved) = &mut saved {
            let (mean, rstd) = saved.get().split_at_mut(channels);
            mean.copy_from_slice(means);
            rstd.copy_from_slice(rstds);
        }
        let (weight, bias) = (weight.as_ref().map(|w| w.get()), bias.as_ref().map(|b| b.get()));
        let (means, rstds) = (&*means, &*rstds);
        parallel::pieces(None, target, area, |plane, _, y| {
            let c = plane % channels;
            let x = source.map(|x| &x[place(plane, (channels, all), area)..][..area]);
            let (mean, scale) = (means[c], rstds[c] * weight.map_or(1.0, |weight| weight[c]));
            let shift = bias.map_or(0.0, |bias| bias[c]);
            let value = |x: f32| after((x - mean) * scale + shift);
            match x {
                Some(x) => wide(|| y.iter_mut().zip(x).for_each(|(y, &x)| *y = value(x))),
                None => wide(|| y.iter_mut().for_each(|y| *y = value(*y))),
            }
            0.0
        });
    })
}

/// Returns the mean and the biased variance of channel `c`.
fn moments(x: &[f32], channels: usize, area: usize, c: usize) -> (f64, f64) {
    let samples = (x.len() / channels) as f64;
    let sum: f64 = planes(x, channels, area, c).map(|plane| parallel::sum(plane, f64::from)).sum();
    let mean = sum / samples;
    let square = |x: f32| (f64::from(x) - mean) * (f64::from(x) - mean);
    let squares: f64 = planes(x, channels, area, c).map(|plane| parallel::sum(plane, square)).sum();
    (mean, squares / samples)
}

/// Returns the mean and the biased variance of all ranks from those of each. All ranks have equally many samples.
fn combined(ranks: impl Iterator<Item = [f32; 2]> + Clone) -> (f64, f64) {
    let count = ranks.clone().count() as f64;
    let mean = ranks.clone().map(|[mean, _]| f64::from(mean)).sum::<f64>() / count;
    let squares = ranks.map(|[own, variance]| f64::from(variance) + (f64::from(own) - mean) * (f64::from(own) - mean));
    (mean, squares.sum::<f64>() / count)
}

/// Writes the mean and the biased variance of each channel of this rank's samples, which the other ranks then receive.
fn statistics_of_rank(op: &BatchNorm, operands: &mut Operands<'_>) -> Bound {
    let (channels, area, all) = (count(&[op.channels]), count(&op.size), count(&[op.input_channels()]));
    let x = operands.source(Slot::Input(0), count(&[operands.batch()]) * all * area)?;
    let rows = operands.rows_of_ranks(Slot::Sent(0))?.filter(|rows| rows.own.count == 2 * op.channels);
    let first = rows.ok_or(Error::Damaged("ranks have no rows for the statistics of a norm"))?.own.first as usize;
    let mut sent = operands.exchanged_target(Slot::Sent(0))?;
    kernel(move |_| {
        let own: &mut [f32] = &mut sent.get()[first..][..2 * channels];
        let (means, variances) = own.split_at_mut(channels);
        means.par_iter_mut().zip(variances).enumerate().for_each(|(c, (mean, variance))| {
            let (of_mean, of_variance) = moments(x.get(), all, area, c);
            (*mean, *variance) = (of_mean as f32, of_variance as f32);
        });
    })
}

/// The statistics of all ranks, a row for each.
struct OfRanks {
    target: Target,
    pitch: usize,
    ranks: usize,
}

impl OfRanks {
    /// Returns the statistics that an operation has received. `None` if it computes its own.
    fn of(operands: &mut Operands<'_>) -> Result<Option<OfRanks>, Error> {
        if !operands.reads(Slot::Received(0)) {
            return Ok(None);
        }
        let rows = operands.rows_of_ranks(Slot::Received(0))?;
        let rows = rows.ok_or(Error::Damaged("ranks have no rows for the statistics of a norm"))?;
        let target = operands.exchanged_target(Slot::Received(0))?;
        let all = rows.all.count as usize;
        Ok(Some(OfRanks { target, pitch: rows.pitch, ranks: all / rows.pitch.max(1) }))
    }

    fn get(&mut self) -> std::slice::ChunksExact<'_, f32> {
        self.target.get().chunks_exact(self.pitch)
    }
}

/// The running statistics, which training reads and writes.
pub(in crate::kernels) struct Running {
    mean: Target,
    variance: Target,
    momentum: f64,
}

impl Running {
    /// Returns the running statistics of an operation in training. `None` if the program has no buffers for them.
    pub(in crate::kernels) fn of(
        operands: &mut Operands<'_>,
        channels: usize,
        momentum: f64,
    ) -> Result<Option<Running>, Error> {
        let Some(mean) = operands.target_if_any(Slot::Buffer(0), channels)? else { return Ok(None) };
        let variance = operands.target(Slot::Buffer(1), channels)?;
        Ok(Some(Running { mean, variance, momentum }))
    }

    /// Blends the mean and the biased variance of a channel, over this many samples, into the running statistics.
    pub(in crate::kernels) fn blend(&mut self, channel: usize, mean: f64, variance: f64, samples: f64) {
        // A single element has no unbiased variance, so its biased one, 0, is used.
        let unbiased = if samples > 1.0 { samples / (samples - 1.0) } else { 1.0 };
        let momentum = self.momentum;
        let blend = |old: &mut f32, new: f64| *old = ((1.0 - momentum) * f64::from(*old) + momentum * new) as f32;
        blend(&mut self.mean.get()[channel], mean);
        blend(&mut self.variance.get()[channel], variance * unbiased);
    }
}

/// Returns `1 / sqrt(variance + eps)`.
pub(in crate::kernels) fn inverse_root(variance: f64, eps: f64) -> f32 {
    (1.0 / (variance + eps).sqrt()) as f32
}

/// Computes the gradients that the operation writes. `dx` may overwrite `dy`.
///
/// If an activation follows the normalisation in the same operation, its input is recomputed for its slope.
pub(in crate::kernels) fn backward(op: &BatchNorm, operands: &mut Operands<'_>) -> Bound {
    if op.eval && !operands.reads(Slot::Input(0)) {
        return scaled(op, operands);
    }
    let Some(function) = op.activation else { return backward_through(op, operands, |dy, _| dy) };
    if !function.has_slope_of_input() {
        return Err(Error::Damaged("a normalisation has the gradient of a function that keeps more than its input"));
    }
    let following = Pointwise { function, arguments: Vec::new(), shape: op.output() };
    functions::with(&following, Through { op, operands, of_output: function.row().kept == Kept::Output })
}

/// Computes the gradients for running statistics if the gradient of the weight is not wanted. Reads no input.
///
/// The gradient of the input is `dy` times a factor of each channel, and that of the bias is the sum of `dy`.
fn scaled(op: &BatchNorm, operands: &mut Operands<'_>) -> Bound {
    let (channels, area) = (count(&[op.channels]), count(&op.size));
    let length = count(&[operands.batch()]) * channels * area;
    let saved = operands.source(Slot::Saved(0), 2 * channels)?;
    let weight = operands.source_if(op.affine, Slot::Input(1), channels)?;
    let mut bias_gradient = operands.gradient(Slot::InputGradient(2), channels)?;
    let flows = operands.writes(Slot::InputGradient(0));
    let mut pair = if flows { Some(operands.gradients(0, length)?) } else { None };
    let alone = operands.source_if(!flows, Slot::Gradient, length)?;
    kernel(move |_| {
        let (mut target, mut source) = (None, alone.as_ref().map(|alone| alone.get()));
        let mut accumulate = false;
        if let Some((pair, adds)) = &mut pair {
            let (from, to) = pair.get();
            (source, target, accumulate) = (from, Some(to), *adds);
        }
        if let Some(out) = &mut bias_gradient {
            let dy = source.or(target.as_deref()).unwrap_or_default();
            let sum =
                |c: usize| planes(dy, channels, area, c).map(|plane| parallel::sum(plane, f64::from)).sum::<f64>();
            parallel::store(out.target.get(), out.accumulate, |c| sum(c) as f32);
        }
        let (rstds, weight) = (&saved.get()[channels..], weight.as_ref().map(|weight| weight.get()));
        let Some(target) = target else { return };
        parallel::pieces(source, target, area, |plane, dy, dx| {
            let c = plane % channels;
            let scale = rstds[c] * weight.map_or(1.0, |weight| weight[c]);
            match dy {
                None => wide(|| dx.iter_mut().for_each(|dx| *dx *= scale)),
                Some(dy) => parallel::store(dx, accumulate, |i| scale * dy[i]),
            }
            0.0
        });
    })
}

/// A backward pass through an activation whose slope depends on its input, or on its output.
struct Through<'o, 'a> {
    op: &'o BatchNorm,
    operands: &'o mut Operands<'a>,
    of_output: bool,
}

impl Use for Through<'_, '_> {
    type Out = Bound;

    fn apply(self, function: impl Scalar) -> Bound {
        let Through { op, operands, of_output } = self;
        match of_output {
            true => backward_through(op, operands, move |dy, y| dy * function.slope(function.value(y))),
            false => backward_through(op, operands, move |dy, y| dy * function.slope(y)),
        }
    }
}

/// Computes the gradients of a normalisation that an activation follows. `through` gets `dy` and the activation's input.
fn backward_through(
    op: &BatchNorm,
    operands: &mut Operands<'_>,
    through: impl Fn(f32, f32) -> f32 + Copy + Send + Sync + 'static,
) -> Bound {
    let maps = Maps { channels: count(&[op.channels]), kept: count(&[op.input_channels()]), area: count(&op.size) };
    let by_batch = !op.eval;
    let is_activated = op.activation.is_some();
    let alters = match op.activation {
        None => Alters::Nothing,
        Some(Function::Relu | Function::Relu6) => Alters::Cheaply,
        Some(_) => Alters::Dearly,
    };
    let reads =
        Reads { kept: Slot::Input(0), affine: op.affine, weight: is_activated, bias: is_activated, alters, by_batch };
    backward_of(maps, reads, operands, move |c, saved, weight, bias| {
        let (means, rstds) = saved.split_at(saved.len() / 2);
        let scale = rstds[c] * weight.map_or(1.0, |weight| weight[c]);
        Input { mean: means[c], rstd: rstds[c], scale, shift: bias.map_or(0.0, |bias| bias[c]), through }
    })
}

/// A channel whose saved tensor is the input of the normalisation.
#[derive(Clone, Copy)]
struct Input<F> {
    mean: f32,
    rstd: f32,
    scale: f32,
    shift: f32,
    through: F,
}

impl<F: Fn(f32, f32) -> f32 + Copy + Sync> Channel for Input<F> {
    fn gradient(self, dy: f32, x: f32) -> f32 {
        // Recomputes the activation's input with the formula of the forward pass.
        (self.through)(dy, (x - self.mean) * self.scale + self.shift)
    }

    fn normalised(self, x: f32) -> f32 {
        (x - self.mean) * self.rstd
    }

    fn product(self, gradient: f32, x: f32) -> f64 {
        f64::from(gradient) * (f64::from(x) - f64::from(self.mean)) * f64::from(self.rstd)
    }
}

/// The sizes of the maps of a backward pass.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Maps {
    pub(in crate::kernels) channels: usize,
    /// Channels of the saved map.
    pub(in crate::kernels) kept: usize,
    pub(in crate::kernels) area: usize,
}

/// The tensors and facts that a backward pass needs in addition to gradients and statistics.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Reads {
    /// The saved tensor of the size of the map.
    pub(in crate::kernels) kept: Slot,
    pub(in crate::kernels) affine: bool,
    /// True if the weight is needed to interpret the saved tensor. The next field is the flag for the bias.
    pub(in crate::kernels) weight: bool,
    pub(in crate::kernels) bias: bool,
    /// The cost of the gradient of an activation after the normalisation.
    pub(in crate::kernels) alters: Alters,
    /// True if the statistics are the batch's, so that gradients flow through them.
    pub(in crate::kernels) by_batch: bool,
}

/// The cost of the gradient of an activation that follows a normalisation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::kernels) enum Alters {
    /// No activation follows.
    Nothing,
    /// Cheaper than writing the gradient to memory and reading it again.
    Cheaply,
    /// More expensive than that. It is computed once for each element, if there is memory to store it.
    Dearly,
}

/// The interpretation of a channel's saved tensor in the backward pass.
pub(in crate::kernels) trait Channel: Copy + Sync {
    /// Returns the gradient at the output of the normalisation.
    fn gradient(self, dy: f32, kept: f32) -> f32;

    /// Returns the normalised value, before scale and shift.
    fn normalised(self, kept: f32) -> f32;

    /// Returns the product of a gradient at the output of the normalisation and the normalised value.
    fn product(self, gradient: f32, kept: f32) -> f64;
}

/// A channel whose gradients have already been propagated through the activation.
#[derive(Clone, Copy)]
struct Brought<C>(C);

impl<C: Channel> Channel for Brought<C> {
    fn gradient(self, dy: f32, _: f32) -> f32 {
        dy
    }

    fn normalised(self, kept: f32) -> f32 {
        self.0.normalised(kept)
    }

    fn product(self, gradient: f32, kept: f32) -> f64 {
        self.0.product(gradient, kept)
    }
}

/// Computes the gradients of a normalisation. `of` takes the index of a channel, the saved statistics, the weights and the biases.
pub(in crate::kernels) fn backward_of<C: Channel>(
    maps @ Maps { channels, kept: all, area }: Maps,
    reads: Reads,
    operands: &mut Operands<'_>,
    of: impl Fn(usize, &[f32], Option<&[f32]>, Option<&[f32]>) -> C + Send + Sync + 'static,
) -> Bound {
    let planes_of = |channels: usize| count(&[operands.batch()]) * channels * area;
    let length = planes_of(channels);
    let input = operands.source(reads.kept, planes_of(all))?;
    let saved = operands.source(Slot::Saved(0), 2 * channels)?;
    let flows = operands.writes(Slot::InputGradient(0));
    let weight = operands.source_if(reads.affine && (flows || reads.weight), Slot::Input(1), channels)?;
    let bias = operands.source_if(reads.affine && reads.bias, Slot::Input(2), channels)?;
    let mut weight_gradient = operands.gradient(Slot::InputGradient(1), channels)?;
    let mut bias_gradient = operands.gradient(Slot::InputGradient(2), channels)?;
    let mut pair = if flows { Some(operands.gradients(0, length)?) } else { None };
    let accumulate = pair.as_ref().is_some_and(|(_, accumulate)| *accumulate);
    let alone = operands.source_if(!flows, Slot::Gradient, length)?;
    let mut sent = operands.target_if_any(Slot::Sent(0), 2 * channels)?;
    let received = operands.source_if(operands.reads(Slot::Received(0)), Slot::Received(0), 2 * channels)?;
    let ranks = if received.is_some() { operands.descent().ranks.count } else { 1 };
    kernel(move |frame| {
        let (x, saved) = (input.get(), saved.get());
        let (sums, products) = grown(frame.scratch, 2 * channels).split_at_mut(channels);
        let (source, mut target) = match &mut pair {
            Some((pair, _)) => {
                let (source, target) = pair.get();
                (source, Some(target))
            }
            None => (alone.as_ref().map(|alone| alone.get()), None),
        };
        let (weight, bias) = (weight.as_ref().map(|w| w.get()), bias.as_ref().map(|b| b.get()));
        let of = |c: usize| of(c, saved, weight, bias);
        let mut source = source;
        // The gradient of the normalisation's output may be stored in the memory of the input's gradient.
        let is_brought = reads.alters == Alters::Dearly && !accumulate && target.is_some();
        if let Some(target) = target.as_deref_mut().filter(|_| is_brought) {
            bring(maps, x, (source.take(), target), of);
        }
        let dy = source.or(target.as_deref()).unwrap_or_default();
        if let Some(received) = &received {
            sums.copy_from_slice(&received.get()[..channels]);
            products.copy_from_slice(&received.get()[channels..]);
        } else if is_brought {
            add_up(maps, (dy, x), false, |c| Brought(of(c)), (sums, products));
        } else {
            add_up(maps, (dy, x), reads.alters != Alters::Nothing, of, (sums, products));
        }
        if let Some(sent) = &mut sent {
            sent.get()[..channels].copy_from_slice(sums);
            sent.get()[channels..].copy_from_slice(products);
        }
        if let Some(out) = &mut weight_gradient {
            parallel::store(out.target.get(), out.accumulate, |c| products[c]);
        }
        if let Some(out) = &mut bias_gradient {
            parallel::store(out.target.get(), out.accumulate, |c| sums[c]);
        }
        let Some(target) = target.take() else { return };
        let share = (channels as f64 / (length as f64 * ranks as f64)) as f32;
        let means = |c: usize| [sums[c] * share, products[c] * share];
        let scale = |c: usize| saved[channels + c] * weight.map_or(1.0, |weight| weight[c]);
        match (is_brought, reads.by_batch) {
            (true, true) => {
                differentiate(maps, x, (source, target, accumulate), |c| (Brought(of(c)), scale(c), means(c)))
            }
            (false, true) => differentiate(maps, x, (source, target, accumulate), |c| (of(c), scale(c), means(c))),
            (true, false) => rescale(maps, x, (source, target, accumulate), |c| (Brought(of(c)), scale(c))),
            (false, false) => rescale(maps, x, (source, target, accumulate), |c| (of(c), scale(c))),
        }
    })
}

/// Propagates gradients through the activation after the normalisation.
fn bring<C: Channel>(
    Maps { channels, kept, area }: Maps,
    x: &[f32],
    (source, target): (Option<&[f32]>, &mut [f32]),
    of: impl Fn(usize) -> C + Sync,
) {
    parallel::pieces(source, target, area, |plane, dy, to| {
        let channel = of(plane % channels);
        let x = &x[place(plane, (channels, kept), area)..][..area];
        match dy {
            None => wide(|| to.iter_mut().zip(x).for_each(|(to, &x)| *to = channel.gradient(*to, x))),
            Some(dy) => parallel::store(to, false, |i| channel.gradient(dy[i], x[i])),
        }
        0.0
    });
}

/// Sums each channel: its gradients at the output of the normalisation, and their products with the normalised values.
fn add_up<C: Channel>(
    Maps { channels, kept, area }: Maps,
    (dy, x): (&[f32], &[f32]),
    alters: bool,
    of: impl Fn(usize) -> C + Sync,
    (sums, products): (&mut [f32], &mut [f32]),
) {
    sums.par_iter_mut().zip(products.par_iter_mut()).enumerate().for_each(|(c, (sum, product))| {
        let channel = of(c);
        let both = || planes(dy, channels, area, c).zip(planes(x, kept, area, c));
        let total: f64 = if alters {
            both().map(|(dy, x)| parallel::sum_of_pairs(dy, x, |dy, x| f64::from(channel.gradient(dy, x)))).sum()
        } else {
            planes(dy, channels, area, c).map(|plane| parallel::sum(plane, f64::from)).sum()
        };
        *sum = total as f32;
        let normalised = |dy: f32, x: f32| channel.product(channel.gradient(dy, x), x);
        *product = both().map(|(dy, x)| parallel::sum_of_pairs(dy, x, normalised)).sum::<f64>() as f32;
    });
}

/// Computes the gradient of the input. `of` returns a channel, its scale, and the means of its gradients and products.
fn differentiate<C: Channel>(
    Maps { channels, kept, area }: Maps,
    x: &[f32],
    (source, target, accumulate): (Option<&[f32]>, &mut [f32], bool),
    of: impl Fn(usize) -> (C, f32, [f32; 2]) + Sync,
) {
    parallel::pieces(source, target, area, |plane, dy, dx| {
        let x = &x[place(plane, (channels, kept), area)..][..area];
        let (channel, scale, [sum, product]) = of(plane % channels);
        let value = |dy: f32, x: f32| scale * (channel.gradient(dy, x) - sum - channel.normalised(x) * product);
        match dy {
            None => wide(|| dx.iter_mut().zip(x).for_each(|(dx, &x)| *dx = value(*dx, x))),
            Some(dy) => parallel::store(dx, accumulate, |i| value(dy[i], x[i])),
        }
        0.0
    });
}

/// Computes the gradient of the input for constant statistics. `of` returns a channel and its scale.
fn rescale<C: Channel>(
    Maps { channels, kept, area }: Maps,
    x: &[f32],
    (source, target, accumulate): (Option<&[f32]>, &mut [f32], bool),
    of: impl Fn(usize) -> (C, f32) + Sync,
) {
    parallel::pieces(source, target, area, |plane, dy, dx| {
        let x = &x[place(plane, (channels, kept), area)..][..area];
        let (channel, scale) = of(plane % channels);
        match dy {
            None => wide(|| dx.iter_mut().zip(x).for_each(|(dx, &x)| *dx = scale * channel.gradient(*dx, x))),
            Some(dy) => parallel::store(dx, accumulate, |i| scale * channel.gradient(dy[i], x[i])),
        }
        0.0
    });
}
