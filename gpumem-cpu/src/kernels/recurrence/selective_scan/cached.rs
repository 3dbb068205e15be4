//! Selective scan of the current time steps, which continues from cached states.
//!
//! It is [`selective_scan`](super) from the states [B, D, N] on. The states advance only over time steps that belong to the sequence.
//! After these, `y` is 0.

use crate::kernels::attention::for_heads;
use crate::kernels::attention::positions::Position;
pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::recurrence::selective_scan::{Forward, GROUP, Inputs, Lanes, Sizes, split, with_lanes};
use crate::kernels::{Bound, kernel};
use crate::matrix::MatrixMut;
use crate::operands::Operands;
use crate::simd::wide;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::CachedScan;
use rayon::prelude::*;

/// Computes `y` from u, delta, A_log, b, c and d, and from the cached states, which it updates.
pub(in crate::kernels) fn forward(op: &CachedScan, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(&op.scan(), operands)?;
    let inputs = Inputs::new(sizes, operands)?;
    let Sizes { samples, steps, channels, states } = sizes;
    let position = Position::new(operands)?;
    let mut kept = operands.target(Slot::Cache(0), samples.saturating_mul(channels).saturating_mul(states))?;
    let mut output = operands.target(Slot::Output, sizes.lengths()[0])?;
    kernel(move |_| {
        let (is_first, at_hand) = (position.get() == 0, position.at_hand(steps));
        let kept = kept.get().par_chunks_exact_mut(channels * states);
        output.get().par_chunks_exact_mut(steps * channels).zip(kept).enumerate().for_each(|(sample, (y, kept))| {
            if is_first {
                kept.fill(0.0);
            }
            y[at_hand * channels..].fill(0.0);
            let y = MatrixMut::new(y, steps, channels, channels);
            for_heads(0..sizes.groups(), (y, kept), &|both, groups| cut(both, groups, states), &|group, (y, kept)| {
                with_lanes(2 * states, |room| {
                    load(kept, &mut room[states..]);
                    wide(Forward { group: &inputs.group(sample, group), room, y, steps: at_hand });
                    store(&room[states..], kept);
                });
            });
        });
    })
}

/// Columns of `y`, and the states of these channels.
type ScanColumns<'a> = (MatrixMut<'a>, &'a mut [f32]);

/// Splits columns and states after this number of groups.
fn cut<'a>((y, kept): ScanColumns<'a>, groups: usize, states: usize) -> (ScanColumns<'a>, ScanColumns<'a>) {
    let (left, right) = split(y, groups);
    let (first, rest) = kept.split_at_mut(left.width() * states);
    ((left, first), (right, rest))
}

/// Loads the states of a group, so that each channel is a lane.
fn load(kept: &[f32], h: &mut [Lanes]) {
    h.fill([0.0; GROUP]);
    for (channel, kept) in kept.chunks_exact(h.len()).enumerate() {
        h.iter_mut().zip(kept).for_each(|(h, &kept)| h[channel] = kept);
    }
}

fn store(h: &[Lanes], kept: &mut [f32]) {
    for (channel, kept) in kept.chunks_exact_mut(h.len()).enumerate() {
        h.iter().zip(kept).for_each(|(h, kept)| *kept = h[channel]);
    }
}
