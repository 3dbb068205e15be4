//! Position of each step in its segment, `y[b, t] = t - (the first step of b with the segment number of t)`.

pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::SegmentPositions;

/// Computes the positions from the segment numbers, which never decrease.
pub(in crate::kernels) fn forward(op: &SegmentPositions, operands: &mut Operands<'_>) -> Bound {
    if !op.is_sound() {
        return Err(Error::Damaged("positions that are no indices"));
    }
    let steps = count(&[op.count]);
    let length = count(&[operands.batch(), op.count]);
    let segments = operands.words(Slot::Input(0), length)?;
    let mut output = operands.word_target(Slot::Output, length)?;
    kernel(move |_| {
        let samples = output.get().chunks_exact_mut(steps).zip(segments.get().chunks_exact(steps));
        for (positions, segments) in samples {
            let (mut position, mut before) = (0, None);
            for (to, &segment) in positions.iter_mut().zip(segments) {
                position = if before == Some(segment) { position + 1 } else { 0 };
                (*to, before) = (position, Some(segment));
            }
        }
    })
}
