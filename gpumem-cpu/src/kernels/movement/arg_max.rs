//! The index of the largest of some indices. If several are equal, this is the first.

pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::ArgMax;

/// Computes the index for each sample.
pub(in crate::kernels) fn forward(op: &ArgMax, operands: &mut Operands<'_>) -> Bound {
    if op.count == 0 || op.count > u64::from(u32::MAX) {
        return Err(Error::Damaged("the largest of no indices, or of more than 2^32"));
    }
    let steps = count(&[op.count]);
    let tokens = operands.words(Slot::Input(0), count(&[operands.batch(), op.count]))?;
    let mut output = operands.word_target(Slot::Output, count(&[operands.batch()]))?;
    kernel(move |_| {
        for (place, tokens) in output.get().iter_mut().zip(tokens.get().chunks_exact(steps)) {
            let first_largest = (0..steps).rev().max_by_key(|&at| tokens[at]);
            *place = first_largest.unwrap_or(0) as u32;
        }
    })
}
