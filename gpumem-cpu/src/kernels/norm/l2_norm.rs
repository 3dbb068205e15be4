//! L2 normalisation: `y = x / max(|x|, eps)` along an axis of C elements, with `inner` positions after it.
//!
//! Backward: `dx = (dy - y * sum of dy * y) / |x|` if the norm is not below eps, otherwise `dx = dy / eps`.

use crate::kernels::elementwise::softmax::{TILE, tiles};
use crate::kernels::{Bound, at_least, kernel};
use crate::operands::{Operands, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::L2Norm;
use rayon::prelude::*;
use std::ops::Range;

/// Returns the elements of the batch, of a slab, and after the axis.
fn resolve(op: &L2Norm, operands: &Operands<'_>) -> Result<[usize; 3], Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("norms along an axis that the shape has not"));
    }
    let slab = count(&[op.length, op.inner]);
    Ok([count(&[operands.batch(), op.outer, slab as u64]), slab, count(&[op.inner])])
}

/// Sums a term for each position of a tile, along the axis of a slab [C, inner].
fn sums(slab: usize, inner: usize, tile: &Range<usize>, term: impl Fn(usize) -> f64) -> [f64; TILE] {
    let mut sums = [0.0; TILE];
    for start in (0..slab).step_by(inner) {
        sums.iter_mut().zip(tile.clone()).for_each(|(sum, offset)| *sum += term(start + offset));
    }
    sums
}

/// Computes `y` from `x`, in place or not, and the norms.
pub(in crate::kernels) fn forward(op: &L2Norm, operands: &mut Operands<'_>) -> Bound {
    let [length, slab, inner] = resolve(op, operands)?;
    let mut saved = operands.target_if_any(Slot::Saved(0), length / slab * inner)?;
    let mut pair = operands.pair(Slot::Input(0), Slot::Output, length)?;
    let eps = op.eps as f32;
    let norms = move |x: &[f32], tile: &Range<usize>| {
        sums(slab, inner, tile, |at| f64::from(x[at]) * f64::from(x[at])).map(|sum| sum.sqrt() as f32)
    };
    kernel(move |_| {
        let (source, target) = pair.get();
        if let Some(saved) = &mut saved {
            // The norms are computed before `x` is overwritten.
            let x = source.unwrap_or(&*target);
            saved.get().par_chunks_mut(inner).zip(x.par_chunks(slab)).for_each(|(saved, x)| {
                tiles(inner).for_each(|tile| {
                    saved[tile.clone()].iter_mut().zip(norms(x, &tile)).for_each(|(saved, norm)| *saved = norm);
                });
            });
        }
        parallel::pieces(source, target, slab, |_, x, y| {
            if let Some(x) = x {
                y.copy_from_slice(x);
            }
            for tile in tiles(inner) {
                let divisors = norms(y, &tile).map(|norm| at_least(eps, norm));
                for start in (0..slab).step_by(inner) {
                    let row = &mut y[start + tile.start..start + tile.end];
                    row.iter_mut().zip(&divisors).for_each(|(y, divisor)| *y /= divisor);
                }
            }
            0.0
        });
    })
}

/// Computes `dx` from `dy`, `y` and the norms. `dx` may overwrite `dy`.
pub(in crate::kernels) fn backward(op: &L2Norm, operands: &mut Operands<'_>) -> Bound {
    let [length, slab, inner] = resolve(op, operands)?;
    let (mut pair, accumulate) = operands.gradients(0, length)?;
    let output = operands.source(Slot::Output, length)?;
    let saved = operands.source(Slot::Saved(0), length / slab * inner)?;
    let eps = op.eps as f32;
    kernel(move |_| {
        let (y, norms) = (output.get(), saved.get());
        let (source, target) = pair.get();
        parallel::pieces(source, target, slab, |piece, dy, dx| {
            let (y, norms) = (&y[piece * slab..][..slab], &norms[piece * inner..][..inner]);
            for tile in tiles(inner) {
                let given = dy.unwrap_or(&*dx);
                let along = sums(slab, inner, &tile, |at| f64::from(given[at]) * f64::from(y[at]));
                for start in (0..slab).step_by(inner) {
                    for (offset, sum) in tile.clone().zip(along) {
                        let (at, norm) = (start + offset, norms[offset]);
                        let dy = dy.unwrap_or(&*dx)[at];
                        // If `x` was divided by eps, the divisor is a constant.
                        let value = if norm < eps { dy / eps } else { (dy - y[at] * sum as f32) / norm };
                        dx[at] = if accumulate { dx[at] + value } else { value };
                    }
                }
            }
            0.0
        });
    })
}
