//! Dropout: `y = keep ? x / (1 - p) : 0`, and `dx = keep ? dy / (1 - p) : 0`.
//!
//! The elements that are kept are drawn from the seed, the step number, the layer's row and the index of the element, so no mask is stored. In
//! channel-wise or sample-wise dropout, all elements of a channel or a sample share a draw.

use crate::kernels::elementwise::pointwise::elements;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Pair, Source, count};
use crate::simd::{Loop, wide};
use gpumem_core::error::Error;
use gpumem_core::number::random::{drop_word, drop_words_from, threshold};
use gpumem_core::program::ops::Mask;
use gpumem_core::program::{Slot, StateWord};

/// Returns the step number and the seed in `State`, where the low word comes first.
pub(in crate::kernels) fn step_and_seed(words: &[u32]) -> (u64, u64) {
    let wide = |low: usize| u64::from(words[low + 1]) << 32 | u64::from(words[low]);
    (wide(StateWord::Step as usize), wide(StateWord::Seed as usize))
}

/// The random draws of a layer.
pub(in crate::kernels) struct Draws {
    state: Source<u32>,
    row: u32,
    threshold: u32,
    scale: f32,
    /// The number of draws of each micro-batch. 0 if the batch is not split.
    of_part: u64,
}

impl Draws {
    /// Returns draws with probability `p` of dropping, from the random stream of `row`. `count` is the number of draws of a pass.
    pub(in crate::kernels) fn new(p: f64, row: u32, count: usize, operands: &Operands<'_>) -> Result<Draws, Error> {
        let state = operands.words(Slot::State, STATE_WORDS)?;
        // With p = 1 nothing is kept, so the scale does not matter as long as it is finite.
        let scale = if p < 1.0 { (1.0 / (1.0 - p)) as f32 } else { 0.0 };
        // A value that all samples share has the same draws in all micro-batches.
        let of_samples = [Slot::Input(0), Slot::Gradient].into_iter().any(|slot| operands.batched(slot));
        let of_part = if of_samples && operands.descent().parts() > 1 { count as u64 } else { 0 };
        Ok(Draws { state, row, threshold: threshold(p), scale, of_part })
    }

    /// Returns the index of the first draw of the current micro-batch.
    fn first(&self) -> u64 {
        if self.of_part == 0 { 0 } else { self.of_part * u64::from(self.state.get()[StateWord::PART]) }
    }

    /// Returns a function from the index of an element to its factor in this step.
    pub(in crate::kernels) fn factor(&self) -> impl Fn(u64) -> f32 + Sync + '_ {
        let (step, seed) = step_and_seed(self.state.get());
        let first = self.first();
        move |index| {
            if drop_word(seed, step, self.row, first + index) < self.threshold { 0.0 } else { self.scale }
        }
    }

    /// Computes the factors of the elements from `first` on. `shared` consecutive elements have the same draw.
    fn factors_of_many(&self, shared: usize, first: usize, out: &mut [f32]) {
        let factor = self.factor();
        let mut done = 0;
        while done < out.len() {
            let draw = (first + done) / shared;
            let end = ((draw + 1) * shared - first).min(out.len());
            out[done..end].fill(factor(draw as u64));
            done = end;
        }
    }

    /// Computes the factors of the elements from `first` on. It must be a multiple of four, because one block of random words serves four elements.
    fn factors(&self, first: usize, out: &mut [f32]) {
        let (step, seed) = step_and_seed(self.state.get());
        let Draws { row, threshold, scale, .. } = *self;
        let of_part = self.first();
        let words = move |block| drop_words_from(seed, step, row, of_part + 4 * block);
        wide(Draw {
            block: first as u64 / 4,
            words,
            factor: move |word| if word < threshold { 0.0 } else { scale },
            out,
        });
    }
}

/// Factors from random words, for blocks of four elements from `block` on.
struct Draw<'a, W, F> {
    block: u64,
    words: W,
    factor: F,
    out: &'a mut [f32],
}

impl<W: Fn(u64) -> [u32; 4], F: Fn(u32) -> f32> Loop for Draw<'_, W, F> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (fours, rest) = self.out.as_chunks_mut::<4>();
        for (four, block) in fours.iter_mut().zip(self.block..) {
            *four = (self.words)(block).map(&self.factor);
        }
        let last = (self.words)(self.block + fours.len() as u64);
        rest.iter_mut().zip(last).for_each(|(factor, word)| *factor = (self.factor)(word));
    }
}

/// The number of words of the `State` tensor.
pub(in crate::kernels) const STATE_WORDS: usize = StateWord::COUNT;

fn scaled(mut pair: Pair, accumulate: bool, op: &Mask, draws: Draws) -> Bound {
    let shared = count(&[op.shared.max(1)]);
    kernel(move |_| {
        let make = |first: usize, factors: &mut [f32]| match shared {
            1 => draws.factors(first, factors),
            _ => draws.factors_of_many(shared, first, factors),
        };
        // A dropped element is 0 even if it was NaN.
        pair.zip_made(accumulate, make, |x, factor| if factor == 0.0 { 0.0 } else { factor * x });
    })
}

/// Returns the draws for this many elements.
fn draws(op: &Mask, elements: usize, operands: &Operands<'_>) -> Result<Draws, Error> {
    Draws::new(op.p, op.stream(operands.row()), elements / count(&[op.shared.max(1)]), operands)
}

/// Computes `y` from `x`, in place or not.
pub(in crate::kernels) fn forward(op: &Mask, operands: &mut Operands<'_>) -> Bound {
    let length = elements(op.shape, operands);
    let pair = operands.pair(Slot::Input(0), Slot::Output, length)?;
    scaled(pair, false, op, draws(op, length, operands)?)
}

/// Computes `dx` from `dy`, in place or not.
pub(in crate::kernels) fn backward(op: &Mask, operands: &mut Operands<'_>) -> Bound {
    let length = elements(op.shape, operands);
    let (pair, accumulate) = operands.gradients(0, length)?;
    scaled(pair, accumulate, op, draws(op, length, operands)?)
}
