//! Softmax: `y = exp(x) / sum(exp(x))` along an axis of C classes, with `inner` positions after it, or its logarithm.
//!
//! Backward: `dx = y * (dy - sum over classes of dy * y)`, and of the logarithm `dx = dy - exp(y) * (sum over classes of dy)`.

use crate::kernels::{Bound, kernel};
use crate::math::{exp, exponentials, sum_of_exponentials};
use crate::operands::{Operands, count};
use crate::parallel;
use crate::simd::{Loop, wide};
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
        sums[0] = sum_of_exponentials(x, max);
        return (maxima, sums);
    }
    for class in x.chunks_exact(inner) {
        let class = &class[tile.clone()];
        wide(|| maxima.iter_mut().zip(class).for_each(|(max, &x)| *max = if x > *max { x } else { *max }));
    }
    for class in x.chunks_exact(inner) {
        wide(Add { sums: &mut sums, maxima: &maxima, class: &class[tile.clone()] });
    }
    (maxima, sums)
}

/// A class of a tile, whose exponentials are added to the sums.
struct Add<'a> {
    sums: &'a mut [f64; TILE],
    maxima: &'a [f32; TILE],
    class: &'a [f32],
}

impl Loop for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for ((sum, max), &x) in self.sums.iter_mut().zip(self.maxima).zip(self.class) {
            *sum += f64::from(exp(x - max));
        }
    }
}

/// A class of a tile, which softmax overwrites.
struct Overwrite<'a> {
    maxima: &'a [f32; TILE],
    ends: &'a [f32; TILE],
    class: &'a mut [f32],
}

impl Loop for Overwrite<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for ((y, max), end) in self.class.iter_mut().zip(self.maxima).zip(self.ends) {
            *y = exp(*y - max) * end;
        }
    }
}

/// The gradient of a row: `dx (+)= slope(dy, y, sum)`. Without `dy`, `dx` holds it.
struct Slopes<'a> {
    logarithm: bool,
    dy: Option<&'a [f32]>,
    y: &'a [f32],
    dx: &'a mut [f32],
    accumulate: bool,
    sum: f32,
}

/// Returns the gradient of an element, given the sum over all classes.
#[inline(always)]
fn slope(logarithm: bool, dy: f32, y: f32, sum: f32) -> f32 {
    if logarithm { dy - exp(y) * sum } else { y * (dy - sum) }
}

impl Loop for Slopes<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Slopes { logarithm, dy, y, dx, accumulate, sum } = self;
        match dy {
            None => {
                for (dx, &y) in dx.iter_mut().zip(y) {
                    *dx = slope(logarithm, *dx, y, sum);
                }
            }
            Some(dy) if accumulate => {
                for ((dx, &dy), &y) in dx.iter_mut().zip(dy).zip(y) {
                    *dx += slope(logarithm, dy, y, sum);
                }
            }
            Some(dy) => {
                for ((dx, &dy), &y) in dx.iter_mut().zip(dy).zip(y) {
                    *dx = slope(logarithm, dy, y, sum);
                }
            }
        }
    }
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
            if inner == 1 && !logarithm {
                exponentials(x, y, false, [parallel::largest(x.unwrap_or(&*y)), 1.0]);
                let scale = (1.0 / parallel::sum(y, f64::from)) as f32;
                wide(|| y.iter_mut().for_each(|y| *y *= scale));
                return 0.0;
            }
            if let Some(x) = x {
                y.copy_from_slice(x);
            }
            for tile in tiles(inner) {
                let (maxima, sums) = maxima_and_sums(y, inner, &tile);
                // The logarithm subtracts the end, softmax multiplies by it.
                let ends = sums.map(|sum| if logarithm { sum.ln() } else { 1.0 / sum } as f32);
                if inner == 1 {
                    // The logarithm has no exponential.
                    let (max, end) = (maxima[0], ends[0]);
                    wide(|| y.iter_mut().for_each(|y| *y = *y - max - end));
                    continue;
                }
                for class in y.chunks_exact_mut(inner) {
                    let class = &mut class[tile.clone()];
                    if logarithm {
                        let class = class.iter_mut().zip(&maxima).zip(&ends);
                        wide(|| class.for_each(|((y, max), end)| *y = *y - max - end));
                    } else {
                        wide(Overwrite { maxima: &maxima, ends: &ends, class });
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
    // A term of the sum over classes.
    let logarithm = op.logarithm;
    let term = move |dy: f32, y: f32| if logarithm { f64::from(dy) } else { f64::from(dy) * f64::from(y) };
    kernel(move |_| {
        let y = output.get();
        let (source, target) = pair.get();
        parallel::pieces(source, target, slab, |piece, dy, dx| {
            let y = &y[piece * slab..][..slab];
            if inner == 1 {
                let sum = parallel::sum_of_pairs(dy.unwrap_or(&*dx), y, term) as f32;
                wide(Slopes { logarithm, dy, y, dx, accumulate, sum });
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
                        let value = slope(logarithm, dy.unwrap_or(&*dx)[at], y[at], sum as f32);
                        dx[at] = if accumulate { dx[at] + value } else { value };
                    }
                }
            }
            0.0
        });
    })
}
