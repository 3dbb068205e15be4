//! Sequence mask: `y[t] = t < n ? x[t] : 0` for a sequence of `n` steps, or in reverse order `y[t] = t < n ? x[n - 1 - t] : 0`.
//!
//! Backward: the same function of `dy`.

use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Pair, Source, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::SequenceMask;

/// Returns the elements of the batch.
fn elements(op: &SequenceMask, operands: &Operands<'_>) -> Result<usize, Error> {
    match op.is_sound() {
        true => Ok(count(&[operands.batch(), op.steps, op.width])),
        false => Err(Error::Damaged("a mask of sequences without elements, or of more steps than an index counts")),
    }
}

/// Returns the sequence lengths of all samples.
fn lengths(operands: &Operands<'_>) -> Result<Source<u32>, Error> {
    operands.words(Slot::Input(1), count(&[operands.batch()]))
}

fn masked(mut pair: Pair, accumulate: bool, op: &SequenceMask, lengths: Source<u32>) -> Bound {
    let ([steps, width], reverse) = ([op.steps, op.width].map(|size| count(&[size])), op.reverse);
    if reverse && matches!(pair, Pair::InPlace(_)) {
        return Err(Error::Damaged("steps of a sequence that change places in place"));
    }
    kernel(move |_| {
        let lengths = lengths.get();
        let (source, target) = pair.get();
        parallel::pieces(source, target, steps * width, |sample, x, y| {
            let n = (lengths[sample] as usize).min(steps);
            let (first, rest) = y.split_at_mut(n * width);
            // In place, the first steps are already there. Their order does not change.
            for (t, y) in first.chunks_exact_mut(width).enumerate().take_while(|_| x.is_some()) {
                let from = if reverse { n - 1 - t } else { t };
                let x = &x.unwrap_or_default()[from * width..][..width];
                parallel::store(y, accumulate, |i| x[i]);
            }
            if !accumulate {
                rest.fill(0.0);
            }
            0.0
        });
    })
}

/// Computes `y` from `x` and the lengths, in place or not.
pub(in crate::kernels) fn forward(op: &SequenceMask, operands: &mut Operands<'_>) -> Bound {
    let length = elements(op, operands)?;
    let lengths = lengths(operands)?;
    masked(operands.pair(Slot::Input(0), Slot::Output, length)?, false, op, lengths)
}

/// Computes `dx` from `dy` and the lengths, in place or not.
pub(in crate::kernels) fn backward(op: &SequenceMask, operands: &mut Operands<'_>) -> Bound {
    let length = elements(op, operands)?;
    let lengths = lengths(operands)?;
    let (pair, accumulate) = operands.gradients(0, length)?;
    masked(pair, accumulate, op, lengths)
}
