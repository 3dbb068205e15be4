//! Softmax: `y = exp(x) / sum(exp(x))` along an axis of C classes, with `inner` positions after it, or its logarithm.
//!
//! Backward: `dx = y * (dy - sum over classes of dy * y)`, and of the logarithm `dx = dy - exp(y) * (sum over classes of dy)`.

use crate::kernels::elementwise::exponential::exp;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel;
use crate::simd::wide;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Softmax;
use std::ops::Range;

/// Positions after the class axis that are processed at a time.
pub(in crate::kernels) const TILE: usize = 32;

/// Returns the tiles of `0..inner`.
pub(in crate::kernels) fn tiles(inner: usize) -> impl Iterator<Item = Range<usize>> {
    (0..inner).step_by(TILE).map(move |start| start..inner.min(start + TILE))
}

/// Returns the largest element of each position of a tile, and the sum of `exp(x - largest)`. `x` is [C, inner].
pub(in crate::kernels) fn maxima_and_sums(x: &[f32], inner: usize, tile: &Range<usize>) -> ([f32; TILE], [f64; TILE]) {
    let (mut maxima, mut sums) = ([f32::NEG_INFINITY; TILE], [0.0; TILE]);
    if inner == 1 {
        let max = parallel::largest(x);
        maxima[0] = max;
        sums[0] = parallel::sum(x, |x| f64::from(exp(x - max)));
        return (maxima, sums);
    }
    for class in x.chunks_exact(inner) {
        let class = &class[tile.clone()];
        wide(|| maxima.iter_mut().zip(class).for_each(|(max, &x)| *max = if x > *max { x } else { *max }));
    }
    for class in x.chunks_exact(inner) {
        let class = sums.iter_mut().zip(&maxima).zip(&class[tile.clone()]);
        wide(|| class.for_each(|((sum, max), &x)| *sum += f64::from(exp(x - max))));
    }
    (maxima, sums)
}

/// Returns the elements of the batch, of classes times inner, and after the axis.
fn resolve(op: &Softmax, operands: &Operands<'_>) -> [usize; 3] {
    let slab = count(&[op.classes, op.inner]);
    [count(&[operands.batch(), op.outer, slab as u64]), slab, count(&[op.inner])]
}

/// Computes `y` from `x`, in place or not.
pub(in crate::kernels) fn forward(op: &Softmax, operands: &mut Operands<'_>) -> Bound {
    let [length, slab, inner] = resolve(op, operands);
    let mut pair = operands.pair(Slot::Input(0), Slot::Output, length)?;
    let logarithm = op.logarithm;
    kernel(move |_| {
        let (source, target) = pair.get();
        parallel::pieces(source, target, slab, |_, x, y| {
            if let Some(x) = x {
                y.copy_from_slice(x);
            }
            for tile in tiles(inner) {
                let (maxima, sums) = maxima_and_sums(y, inner, &tile);
                // The logarithm subtracts the end, softmax multiplies by it.
                let ends = sums.map(|sum| if logarithm { sum.ln() } else { 1.0 / sum } as f32);
                if inner == 1 {
                    let (max, end) = (maxima[0], ends[0]);
                    if logarithm {
                        wide(|| y.iter_mut().for_each(|y| *y = *y - max - end));
                    } else {
                        wide(|| y.iter_mut().for_each(|y| *y = exp(*y - max) * end));
                    }
                    continue;
                }
                for class in y.chunks_exact_mut(inner) {
                    let class = class[tile.clone()].iter_mut().zip(&maxima).zip(&ends);
                    if logarithm {
                        wide(|| class.for_each(|((y, max), end)| *y = *y - max - end));
                    } else {
                        wide(|| class.for_each(|((y, max), end)| *y = exp(*y - max) * end));
                    }
                }
            }
            0.0
        });
    })
}

/// Computes `dx` from `dy` and `y`. `dx` may overwrite `dy`.
pub(in crate::kernels) fn backward(op: &Softmax, operands: &mut Operands<'_>) -> Bound {
    let [length, slab, inner] = resolve(op, operands);
    let (mut pair, accumulate) = operands.gradients(0, length)?;
    let output = operands.source(Slot::Output, length)?;
    // A term of the sum over classes, and the gradient given that sum.
    let logarithm = op.logarithm;
    let term = move |dy: f32, y: f32| if logarithm { f64::from(dy) } else { f64::from(dy) * f64::from(y) };
    let slope = move |dy: f32, y: f32, sum: f32| if logarithm { dy - exp(y) * sum } else { y * (dy - sum) };
    kernel(move |_| {
        let y = output.get();
        let (source, target) = pair.get();
        parallel::pieces(source, target, slab, |piece, dy, dx| {
            let y = &y[piece * slab..][..slab];
            if inner == 1 {
                let sum = parallel::sum_of_pairs(dy.unwrap_or(&*dx), y, term) as f32;
                match dy {
                    None => wide(|| dx.iter_mut().zip(y).for_each(|(dx, &y)| *dx = slope(*dx, y, sum))),
                    Some(dy) => parallel::store(dx, accumulate, |i| slope(dy[i], y[i], sum)),
                }
                return 0.0;
            }
            for tile in tiles(inner) {
                let mut sums = [0.0; TILE];
                for start in (0..slab).step_by(inner) {
                    let range = start + tile.start..start + tile.end;
                    let dy = &dy.unwrap_or(&*dx)[range.clone()];
                    for (sum, (&dy, &y)) in sums.iter_mut().zip(dy.iter().zip(&y[range])) {
                        *sum += term(dy, y);
                    }
                }
                for start in (0..slab).step_by(inner) {
                    for (offset, sum) in tile.clone().zip(sums) {
                        let at = start + offset;
                        let value = slope(dy.unwrap_or(&*dx)[at], y[at], sum as f32);
                        dx[at] = if accumulate { dx[at] + value } else { value };
                    }
                }
            }
            0.0
        });
    })
}
