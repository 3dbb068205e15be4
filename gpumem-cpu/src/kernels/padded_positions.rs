//! The position of each token among those that are no padding, `y[b, t] = padding + (how many of token[b, ..=t] are none)`; padding has
//! its own index.

use super::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::PaddedPositions;

/// Positions from the tokens.
pub(super) fn forward(op: &PaddedPositions, operands: &mut Operands<'_>) -> Bound {
    if !op.is_sound() {
        return Err(Error::Damaged("positions that are no indices"));
    }
    let (steps, padding) = (count(&[op.count]), op.padding as u32);
    let length = count(&[operands.batch(), op.count]);
    let tokens = operands.words(Slot::Input(0), length)?;
    let mut output = operands.word_target(Slot::Output, length)?;
    kernel(move |_| {
        let samples = output.get().chunks_exact_mut(steps).zip(tokens.get().chunks_exact(steps));
        for (positions, tokens) in samples {
            let mut last = padding;
            for (position, &token) in positions.iter_mut().zip(tokens) {
                last += u32::from(token != padding);
                *position = if token == padding { padding } else { last };
            }
        }
    })
}
