//! Triplet margin loss with mining. Each vector is compared with the farthest vector of its class and the nearest of another class in the batch.
//!
//! ```text
//! d[i, j] = |x[i] - x[j]|;  p[i] = the j != i with the same number and the largest d[i, j];  n[i] = the j with another and the smallest
//! loss    = sum of max(0, d[i, p[i]] - d[i, n[i]] + margin) over the anchors that have both
//! dx[r]   = u[r, p[r]] - u[r, n[r]] + sum over i with p[i] = r of u[r, i] - sum over i with n[i] = r of u[r, i]
//!           over anchors whose term is above 0, with u[i, j] = (x[i] - x[j]) / d[i, j], and 0 where that is 0
//! ```
//!
//! The loss is divided by the number of anchors that have both. Of vectors at equal distances, the first is taken.

use crate::kernels::loss::{Logits, Total};
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::loss::Reduction;
use gpumem_core::program::{Criterion, Slot};
use rayon::prelude::*;

/// The index that stands for no sample.
const NONE: u32 = u32::MAX;

/// The samples that were found for an anchor, positive and negative, and their distances. They are saved as bits of f32.
#[derive(Clone, Copy)]
struct Found {
    samples: [u32; 2],
    distances: [f32; 2],
}

impl Found {
    /// Returns the term of an anchor before it is cut off at 0. `None` unless the anchor has both a positive and a negative.
    fn term(&self, margin: f64) -> Option<f64> {
        let [near, far] = self.distances.map(f64::from);
        (!self.samples.contains(&NONE)).then_some(near - far + margin)
    }
}

fn distance(x: &[f32], y: &[f32]) -> f32 {
    let square = |x: f32, y: f32| (f64::from(x) - f64::from(y)).powi(2);
    parallel::sum_of_pairs(x, y, square).sqrt() as f32
}

fn find(x: &[f32], ids: &[u32], length: usize, anchor: usize) -> Found {
    let mut found = Found { samples: [NONE; 2], distances: [0.0; 2] };
    let own = &x[anchor * length..][..length];
    for (other, row) in x.chunks_exact(length).enumerate().filter(|(other, _)| *other != anchor) {
        let distance = distance(own, row);
        let side = usize::from(ids[other] != ids[anchor]);
        let is_first = found.samples[side] == NONE;
        let is_better = if side == 0 { distance > found.distances[0] } else { distance < found.distances[1] };
        // A NaN distance is taken, so that it reaches the loss.
        if is_first || is_better || distance.is_nan() {
            (found.samples[side], found.distances[side]) = (other as u32, distance);
        }
    }
    found
}

/// Adds `factor * (x - y) / distance` to a gradient.
fn add(dx: &mut [f32], [x, y]: [&[f32]; 2], distance: f32, factor: f64) {
    if distance != 0.0 {
        let factor = factor / f64::from(distance);
        let each = dx.iter_mut().zip(x.iter().zip(y));
        each.for_each(|(dx, (&x, &y))| *dx += (factor * (f64::from(x) - f64::from(y))) as f32);
    }
}

/// Binds the loss to its operands.
pub(in crate::kernels) fn bind(
    criterion: &Criterion,
    operands: &mut Operands<'_>,
    mut x: Logits,
    mut loss: Total,
) -> Bound {
    let (samples, length) = (count(&[operands.batch()]), count(&[criterion.classes]));
    if matches!(&x, Logits::Pair(pair, _) if pair.is_in_place()) || length == 0 {
        return Err(Error::Damaged("the gradient of a loss of a batch overwrites what others are compared with"));
    }
    let ids = operands.words(Slot::Target, samples)?;
    let mut saved = operands.target(criterion.own_saved(), 4 * samples)?;
    // This backend sums without the scratch memory.
    if operands.writes(Slot::Workspace) {
        operands.target(Slot::Workspace, 2 * samples)?;
    }
    if criterion.counts() {
        operands.target(Slot::Saved(0), 1)?;
    }
    let (margin, weight) = (criterion.number(), criterion.weight);
    let is_mean = criterion.options.reduction == Reduction::Mean;
    kernel(move |_| {
        let (x, gradient) = match &mut x {
            Logits::Alone(source) => (source.get(), None),
            Logits::Pair(pair, accumulate) => {
                let (source, target) = pair.get();
                (source.unwrap_or(&[]), Some((target, *accumulate)))
            }
        };
        let ids = ids.get();
        saved.get().par_chunks_exact_mut(4).enumerate().for_each(|(anchor, to)| {
            let Found { samples: [p, n], distances: [near, far] } = find(x, ids, length, anchor);
            to.copy_from_slice(&[f32::from_bits(p), f32::from_bits(n), near, far]);
        });
        let saved = &*saved.get();
        let found = |anchor: usize| {
            let of = &saved[4 * anchor..][..4];
            Found { samples: [of[0].to_bits(), of[1].to_bits()], distances: [of[2], of[3]] }
        };
        let terms = || (0..samples).filter_map(|anchor| found(anchor).term(margin));
        let share = weight / if is_mean { terms().count() as f64 } else { 1.0 };
        // A term that is not below 0 may be NaN.
        let sum: f64 = terms().map(|term| if term < 0.0 { 0.0 } else { term }).sum();
        if let Some((gradient, accumulate)) = gradient {
            parallel::pieces(None, gradient, length, |sample, _, dx| {
                if !accumulate {
                    dx.fill(0.0);
                }
                let row = |of: usize| &x[of * length..][..length];
                for anchor in 0..samples {
                    let of = found(anchor);
                    if of.term(margin).is_none_or(|term| term <= 0.0) {
                        continue;
                    }
                    for (side, factor) in [share, -share].into_iter().enumerate() {
                        let (other, distance) = (of.samples[side] as usize, of.distances[side]);
                        if anchor == sample {
                            add(dx, [row(sample), row(other)], distance, factor);
                        } else if other == sample {
                            add(dx, [row(sample), row(anchor)], distance, factor);
                        }
                    }
                }
                0.0
            });
        }
        loss.put(sum * share);
    })
}
