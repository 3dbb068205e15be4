//! Convolution of the current time steps of a signal, whose windows reach back to earlier steps:
//! `y[o, t] = bias[o] + sum over c and j of w[o, c, j] x[c, t - reach + j * dilation]`.
//!
//! A cache has the last columns before the current ones, with that of time step `t` in column `t % reach`.

use crate::kernels::attention::positions::Position;
pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Source, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::CachedConvolution;
use rayon::prelude::*;

/// The sizes of a sample.
#[derive(Clone, Copy)]
struct Sizes {
    channels: usize,
    outputs: usize,
    kernel: usize,
    dilation: usize,
    groups: usize,
    steps: usize,
    reach: usize,
}

impl Sizes {
    fn new(op: &CachedConvolution) -> Result<Sizes, Error> {
        if !op.is_sound() {
            return Err(Error::Damaged("a convolution of a sequence has sizes that do not fit each other"));
        }
        let CachedConvolution { in_channels, out_channels, kernel_size, dilation, groups, steps, .. } = *op;
        let [channels, outputs, kernel, dilation, groups, steps, reach] =
            [in_channels, out_channels, kernel_size, dilation, groups, steps, op.reach()].map(|size| count(&[size]));
        Ok(Sizes { channels, outputs, kernel, dilation, groups, steps, reach })
    }

    /// Adds the terms of one input channel to a row of `y`. `x` are its current time steps, `kept` the columns before them.
    fn add(&self, [x, kept]: [&[f32]; 2], before: u64, weight: &[f32], y: &mut [f32]) {
        for (j, weight) in weight.iter().enumerate() {
            let back = self.reach - j * self.dilation;
            for (t, y) in y.iter_mut().enumerate() {
                let x = match t.checked_sub(back) {
                    Some(t) => x[t],
                    // The window reaches this many steps before the current ones.
                    None => match before.checked_sub((back - t) as u64) {
                        Some(step) => kept[(step % self.reach as u64) as usize],
                        None => 0.0,
                    },
                };
                *y += weight * x;
            }
        }
    }

    /// Stores the current columns of a channel that windows of later steps reach.
    fn keep(&self, x: &[f32], before: u64, kept: &mut [f32]) {
        for (t, &x) in x.iter().enumerate().skip(x.len().saturating_sub(self.reach)) {
            kept[(before.saturating_add(t as u64) % self.reach as u64) as usize] = x;
        }
    }
}

/// Computes a row of `y` for each output channel from the current time steps and the cached columns. Then updates the cache.
pub(in crate::kernels) fn forward(op: &CachedConvolution, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op)?;
    let Sizes { channels, outputs, kernel: width, groups, steps, reach, .. } = sizes;
    let of = |rows: u64, columns: u64| count(&[operands.batch(), rows, columns]);
    let lengths = [of(op.in_channels, op.steps), of(op.in_channels, op.reach()), of(op.out_channels, op.steps)];
    let weight = count(&[op.out_channels, op.in_channels / op.groups, op.kernel_size]);
    let position = Position::new(operands)?;
    let x: Source = operands.source(Slot::Input(0), lengths[0])?;
    let weight = operands.source(Slot::Input(1), weight)?;
    let bias = operands.source_if(op.bias, Slot::Input(2), outputs)?;
    let mut kept = operands.target(Slot::Cache(0), lengths[1])?;
    let mut output = operands.target(Slot::Output, lengths[2])?;
    kernel(move |_| {
        let (before, at_hand) = (position.get(), position.at_hand(steps));
        let (x, weight, bias) = (x.get(), weight.get(), bias.as_ref().map(Source::get));
        let (each, columns) = (channels / groups, kept.get());
        output.get().par_chunks_exact_mut(steps).enumerate().for_each(|(row, y)| {
            let (sample, channel) = (row / outputs, row % outputs);
            y.fill(bias.map_or(0.0, |bias| bias[channel]));
            let first = sample * channels + channel / (outputs / groups) * each;
            for c in 0..each {
                let inputs = [&x[(first + c) * steps..][..steps], &columns[(first + c) * reach..][..reach]];
                sizes.add(inputs, before, &weight[(channel * each + c) * width..][..width], y);
            }
        });
        let rows = columns.par_chunks_exact_mut(reach).zip(x.par_chunks_exact(steps));
        rows.for_each(|(kept, x)| sizes.keep(&x[..at_hand], before, kept));
    })
}
