//! Rows normalised by their own statistics, `y = (x - mean) * rstd * weight[j] + bias[j]` with mean and biased variance of
//! each row and `rstd = 1 / sqrt(variance + eps)`. R rows a sample, D features.
//!
//! Backward, with `n = (x - mean) * rstd`, `g = dy * weight` and means over the row:
//! `dbias = sum over rows of dy`, `dweight = sum over rows of dy * n`, `dx = rstd * (g - mean(g) - n * mean(g * n))`.

use super::batch_norm::inverse_root;
use super::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Normalize;
use rayon::prelude::*;

/// Mean and `1 / std` of a row.
fn statistics(row: &[f32], eps: f64) -> (f32, f32) {
    let mean = parallel::sum(row, f64::from) / row.len() as f64;
    let squares = parallel::sum(row, |x| (f64::from(x) - mean) * (f64::from(x) - mean));
    (mean as f32, inverse_root(squares / row.len() as f64, eps))
}

/// `y` from `x`; in training also the statistics, the means of a sample's rows before their `1 / std`.
pub(super) fn forward(op: &Normalize, operands: &mut Operands<'_>) -> Bound {
    let (rows, features, eps) = (count(&[op.rows]), count(&[op.length]), op.eps);
    let length = count(&[operands.batch(), op.rows, op.length]);
    let mut pair = operands.pair(Slot::Input(0), Slot::Output, length)?;
    let weight = operands.source_if(op.scale, Slot::Input(1), features)?;
    let bias = operands.source_if(op.shift, Slot::Input(2), features)?;
    let mut saved = operands.target_if_any(Slot::Saved(0), count(&[operands.batch(), 2, op.rows]))?;
    kernel(move |_| {
        let (source, target) = pair.get();
        let saved = saved.as_mut().map(|saved| {
            let x = source.unwrap_or(&*target);
            let saved = saved.get();
            saved.par_chunks_mut(2 * rows).zip(x.par_chunks(rows * features)).for_each(|(saved, x)| {
                let (means, rstds) = saved.split_at_mut(rows);
                let both = means.par_iter_mut().zip(rstds.par_iter_mut()).zip(x.par_chunks(features));
                both.for_each(|((mean, rstd), row)| (*mean, *rstd) = statistics(row, eps));
            });
            &*saved
        });
        let (weight, bias) = (weight.as_ref().map(|w| w.get()), bias.as_ref().map(|b| b.get()));
        parallel::pieces(source, target, features, |row, x, y| {
            let (mean, rstd) = match saved {
                Some(saved) => kept(saved, rows, row),
                None => statistics(x.unwrap_or(&*y), eps),
            };
            for j in 0..features {
                let x = x.map_or(y[j], |x| x[j]);
                let scaled = (x - mean) * rstd * weight.map_or(1.0, |weight| weight[j]);
                y[j] = scaled + bias.map_or(0.0, |bias| bias[j]);
            }
            0.0
        });
    })
}

/// Mean and `1 / std` of a row, counted over the whole batch.
fn kept(saved: &[f32], rows: usize, row: usize) -> (f32, f32) {
    let sample = &saved[row / rows * 2 * rows..][..2 * rows];
    (sample[row % rows], sample[rows + row % rows])
}

/// The gradients that the operation writes; `dx` may overwrite `dy`.
pub(super) fn backward(op: &Normalize, operands: &mut Operands<'_>) -> Bound {
    let (rows, features) = (count(&[op.rows]), count(&[op.length]));
    let length = count(&[operands.batch(), op.rows, op.length]);
    let input = operands.source(Slot::Input(0), length)?;
    let saved = operands.source(Slot::Saved(0), count(&[operands.batch(), 2, op.rows]))?;
    let flows = operands.writes(Slot::InputGradient(0));
    let weight = operands.source_if(op.scale && flows, Slot::Input(1), features)?;
    let mut weight_gradient = operands.gradient(Slot::InputGradient(1), features)?;
    let mut bias_gradient = operands.gradient(Slot::InputGradient(2), features)?;
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
        if let Some(out) = &mut weight_gradient {
            parallel::column_sums(out.target.get(), out.accumulate, length / features, |row, first, sums| {
                let (mean, rstd) = kept(saved, rows, row);
                let at = row * features + first;
                for (sum, (&dy, &x)) in sums.iter_mut().zip(dy[at..].iter().zip(&x[at..])) {
                    *sum += f64::from(dy) * f64::from((x - mean) * rstd);
                }
            });
        }
        if let Some(out) = &mut bias_gradient {
            parallel::column_sums(out.target.get(), out.accumulate, length / features, |row, first, sums| {
                sums.iter_mut().zip(&dy[row * features + first..]).for_each(|(sum, &dy)| *sum += f64::from(dy));
            });
        }
        let Some(target) = target else { return };
        let weight = weight.as_ref().map(|weight| weight.get());
        parallel::pieces(source, target, features, |row, dy, dx| {
            let (mean, rstd) = kept(saved, rows, row);
            let x = &x[row * features..][..features];
            let scaled = |dy: f32, j: usize| dy * weight.map_or(1.0, |weight| weight[j]);
            let (mut sum, mut product) = (0.0, 0.0);
            for j in 0..features {
                let g = f64::from(scaled(dy.map_or(dx[j], |dy| dy[j]), j));
                sum += g;
                product += g * f64::from((x[j] - mean) * rstd);
            }
            let (sum, product) = ((sum / features as f64) as f32, (product / features as f64) as f32);
            for j in 0..features {
                let g = scaled(dy.map_or(dx[j], |dy| dy[j]), j);
                let value = rstd * (g - sum - (x[j] - mean) * rstd * product);
                dx[j] = if accumulate { dx[j] + value } else { value };
            }
            0.0
        });
    })
}
