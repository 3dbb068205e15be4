//! Reduction along an axis, `y[o, i] = f(x[o, :, i])`.
//!
//! If a second input gives a number of elements `n` per sample, `y` reduces only the first `n` elements, and is 0 if `n` is 0.
//!
//! Backward: of a sum, every element gets the gradient of the result; of a mean, that divided by the number of elements; of a maximum, only
//! the largest element gets it.

use crate::kernels::conv::max_pool::required;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Source, Target, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{Reduce, Reduction};

/// Returns the results of the batch, the length of the axis, and the positions after the axis.
fn sizes(op: &Reduce, operands: &Operands<'_>) -> Result<[usize; 3], Error> {
    if op.length == 0 || op.inner == 0 {
        return Err(Error::Damaged("an axis without elements is reduced"));
    }
    Ok([count(&[operands.batch(), op.outer, op.inner]), count(&[op.length]), count(&[op.inner])])
}

/// The number of elements to reduce for each result.
struct Counts {
    /// The numbers, one per sample, and the outer positions per sample. `None` if all elements count.
    numbers: Option<(Source<u32>, usize)>,
    length: usize,
    is_mean: bool,
}

impl Counts {
    fn new(op: &Reduce, operands: &Operands<'_>) -> Result<Counts, Error> {
        let (samples, outer, length) = (count(&[operands.batch()]), count(&[op.outer]), count(&[op.length]));
        let numbers = if op.counted { Some((operands.words(Slot::Input(1), samples)?, outer)) } else { None };
        Ok(Counts { numbers, length, is_mean: op.reduction == Reduction::Mean })
    }

    /// Returns the number of elements to reduce at an outer position of the batch.
    fn of(&self, outer: usize) -> usize {
        match &self.numbers {
            Some((numbers, each)) => (numbers.get()[outer / each] as usize).min(self.length),
            None => self.length,
        }
    }

    /// Returns the factor of a sum of so many elements.
    fn scale(&self, elements: usize) -> f64 {
        if self.is_mean && elements > 0 { 1.0 / elements as f64 } else { 1.0 }
    }
}

/// Computes `y` from `x`.
pub(in crate::kernels) fn forward(op: &Reduce, operands: &mut Operands<'_>) -> Bound {
    let [results, length, inner] = sizes(op, operands)?;
    let input = operands.source(Slot::Input(0), results.saturating_mul(length))?;
    let mut output = operands.target(Slot::Output, results)?;
    let mut places: Option<Target<u32>> = None;
    if op.has_places() && operands.writes(Slot::Saved(0)) {
        places = Some(operands.word_target(Slot::Saved(0), results)?);
    }
    let counts = Counts::new(op, operands)?;
    if op.reduction == Reduction::Max {
        return kernel(move |_| largest(input.get(), output.get(), places.as_mut(), (&counts, inner)));
    }
    kernel(move |_| {
        let x = input.get();
        parallel::pieces(None, output.get(), inner, |outer, _, y| {
            let elements = counts.of(outer);
            let scale = counts.scale(elements);
            let x = &x[outer * length * inner..][..elements * inner];
            if inner == 1 {
                y[0] = (parallel::sum(x, f64::from) * scale) as f32;
                return 0.0;
            }
            parallel::with_sums(inner, |sums| {
                for row in x.chunks_exact(inner) {
                    sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
                }
                y.iter_mut().zip(sums).for_each(|(y, sum)| *y = (*sum * scale) as f32);
            });
            0.0
        });
    })
}

/// The saved position of a maximum over no elements, which matches no element.
const NOWHERE: u32 = u32::MAX;

fn largest(x: &[f32], y: &mut [f32], places: Option<&mut Target<u32>>, (counts, inner): (&Counts, usize)) {
    let mut places = places.map(Target::get);
    for (outer, y) in y.chunks_exact_mut(inner).enumerate() {
        let elements = counts.of(outer);
        let x = &x[outer * counts.length * inner..][..elements * inner];
        if elements == 0 {
            y.fill(0.0);
            places.iter_mut().for_each(|places| places[outer * inner..][..inner].fill(NOWHERE));
            continue;
        }
        for (i, y) in y.iter_mut().enumerate() {
            let (mut best, mut place) = (x[i], 0);
            for at in 1..elements {
                let x = x[at * inner + i];
                // A NaN is larger than any number. Of equal elements the first one counts.
                if x > best || (x.is_nan() && !best.is_nan()) {
                    (best, place) = (x, at);
                }
            }
            *y = best;
            if let Some(places) = &mut places {
                places[outer * inner + i] = place as u32;
            }
        }
    }
}

/// Computes `dx` from `dy`.
pub(in crate::kernels) fn backward(op: &Reduce, operands: &mut Operands<'_>) -> Bound {
    let [results, length, inner] = sizes(op, operands)?;
    let gradient = operands.source(Slot::Gradient, results)?;
    let places = if op.has_places() { Some(operands.words(Slot::Saved(0), results)?) } else { None };
    let (accumulate, mut target) = required(operands, results.saturating_mul(length))?;
    let counts = if places.is_none() { Some(Counts::new(op, operands)?) } else { None };
    kernel(move |_| {
        let (dy, places) = (gradient.get(), places.as_ref().map(|places| places.get()));
        parallel::pieces(None, target.get(), inner, |row, _, dx| {
            let (first, at) = (row / length * inner, (row % length) as u32);
            let elements = counts.as_ref().map_or(length, |counts| counts.of(row / length));
            let scale = counts.as_ref().map_or(1.0, |counts| counts.scale(elements)) as f32;
            parallel::store(dx, accumulate, |i| match places {
                Some(places) if places[first + i] != at => 0.0,
                Some(_) => dy[first + i],
                None if at as usize >= elements => 0.0,
                None => dy[first + i] * scale,
            });
            0.0
        });
    })
}
