//! Attention of the current time steps over themselves and all earlier steps, whose keys and values are in a cache.
//!
//! The rows of new keys and values are copied into the cache. Then it is [`attention`](crate::kernels::attention) over all rows of the cache. A time step that
//! has no place in the cache does not change it.

use crate::kernels::attention::positions::Position;
use crate::kernels::attention::{Head, Within, attend, cut_outputs, for_heads};
pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::{Bound, kernel};
use crate::matrix::{Matrix, MatrixMut};
use crate::operands::{Operands, Source, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::CachedAttention;
use rayon::prelude::*;

/// Queries, keys and values of the current time steps.
struct Inputs {
    parts: Vec<Source>,
    /// Elements of a row of each.
    features: [usize; 3],
    steps: usize,
}

impl Inputs {
    fn new(op: &CachedAttention, operands: &Operands<'_>) -> Result<Inputs, Error> {
        let source =
            |(input, row): (u8, u64)| operands.source(Slot::Input(input), count(&[operands.batch(), op.steps(), row]));
        let parts: Result<Vec<Source>, Error> = (0..).zip(op.rows()).map(source).collect();
        Ok(Inputs { parts: parts?, features: op.parts().map(|size| count(&[size])), steps: count(&[op.steps()]) })
    }

    /// Returns the rows of queries (0), keys (1) or values (2) of a sample.
    fn part(&self, part: usize, sample: usize) -> Matrix<'_> {
        let features = self.features;
        let (input, before, row) = match self.parts.len() {
            1 => (0, features[..part].iter().sum::<usize>(), features.iter().sum()),
            _ => (part, 0, features[part]),
        };
        let data = &self.parts[input].get()[sample * self.steps * row..][..self.steps * row];
        Matrix::new(data, self.steps, row, row).columns(before..before + features[part])
    }
}

/// Computes `y` from queries, keys and values and from the cache, to which keys and values are added.
pub(in crate::kernels) fn forward(op: &CachedAttention, operands: &mut Operands<'_>) -> Bound {
    if !op.is_sound() {
        return Err(Error::Damaged("attention has sizes that do not fit each other"));
    }
    let inputs = Inputs::new(op, operands)?;
    let [heads, width, values, cache] = [op.heads, op.width, op.values, op.cache].map(|size| count(&[size]));
    let group = count(&[op.heads / op.kv_heads]);
    let window = if op.window == 0 { usize::MAX } else { count(&[op.window]) };
    let (scale, steps) = (op.scale as f32, inputs.steps);
    let [_, key_row, value_row] = inputs.features;
    let position = Position::new(operands)?;
    let room = |row: u64| count(&[operands.batch(), op.cache, row]);
    let lengths = [room(op.parts()[1]), room(op.parts()[2])];
    let mut keys = operands.target(Slot::Cache(0), lengths[0])?;
    let mut all_values = operands.target(Slot::Cache(1), lengths[1])?;
    let features = count(&[op.shape.last()]);
    let mut output = operands.target(Slot::Output, count(&[operands.batch(), op.steps(), op.shape.last()]))?;
    kernel(move |_| {
        // Steps beyond the end of the cache are neither stored nor read.
        let before = usize::try_from(position.get()).unwrap_or(usize::MAX).min(cache);
        let there = cache.min(before.saturating_add(steps));
        let caches = keys.get().par_chunks_exact_mut(cache * key_row);
        let caches = caches.zip(all_values.get().par_chunks_exact_mut(cache * value_row));
        let outputs = output.get().par_chunks_exact_mut(steps * features);
        outputs.zip(caches).enumerate().for_each(|(sample, (y, (keys, all_values)))| {
            for (part, cache, row) in [(1, &mut *keys, key_row), (2, &mut *all_values, value_row)] {
                let new = inputs.part(part, sample);
                for step in 0..there - before {
                    cache[(before + step) * row..][..row].copy_from_slice(new.row(step));
                }
            }
            let queries = inputs.part(0, sample);
            let kept =
                [Matrix::new(keys, cache, key_row, key_row), Matrix::new(all_values, cache, value_row, value_row)];
            let head = |index: usize| {
                let shared = index / group;
                let strip = |index: usize, width: usize| index * width..(index + 1) * width;
                let [keys, all_values] = kept.map(|kept| kept.rows(0..there));
                Head {
                    parts: [
                        queries.columns(strip(index, width)),
                        keys.columns(strip(shared, width)),
                        all_values.columns(strip(shared, values)),
                    ],
                    bias: None,
                    scale,
                    keys: there,
                    within: Within::First(there),
                    before,
                    causal: true,
                    window,
                    first_draw: 0,
                }
            };
            let y = MatrixMut::new(y, steps, features, features);
            for_heads(
                0..heads,
                (y, None),
                &|outputs, count| cut_outputs(outputs, [count * values, count * steps]),
                &|index, (y, _)| attend(&head(index), steps, None::<&fn(u64) -> f32>, y, None),
            );
        });
    })
}
