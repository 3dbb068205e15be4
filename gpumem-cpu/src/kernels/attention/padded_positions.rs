//! Position of each token, not counting padding tokens: `y[b, t] = padding + (number of tokens in token[b, ..=t] other than padding)`.
//! A padding token has the position `padding`.

pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::PaddedPositions;

/// Computes the positions from the tokens.
pub(in crate::kernels) fn forward(op: &PaddedPositions, operands: &mut Operands<'_>) -> Bound {
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
