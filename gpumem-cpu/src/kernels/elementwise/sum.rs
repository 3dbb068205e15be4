//! Sum of several values, `y = x0 + x1 + ..`. Values without a batch are added to every sample. The output may overwrite an input.
//!
//! Backward: a sum passes its gradient on, so it needs no operation.

use crate::kernels::elementwise::pointwise::elements;
pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Source};
use crate::parallel::{self, PIECE};
use crate::simd::wide;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Sum;

/// Returns the elements of `slot`, which has either one sample or all `length` elements of the output.
fn shared(operands: &Operands<'_>, slot: Slot, length: usize) -> Result<usize, Error> {
    let found = operands.length(slot)?;
    let each = length / operands.batch() as usize;
    if found == length || found == each { Ok(found) } else { Err(Error::Damaged("a branch has another shape")) }
}

/// Computes `y` from all `x`.
pub(in crate::kernels) fn forward(op: &Sum, operands: &mut Operands<'_>) -> Bound {
    let length = elements(op.shape, operands);
    let branches = u8::try_from(op.branches).map_err(|_| Error::Damaged("a sum has over 255 branches"))?;
    // The branches in their order. `None` marks a branch in the output's memory. The order keeps the sum independent of which branch it overwrites.
    let mut all: Vec<Option<Source>> = Vec::new();
    for slot in (0..branches).map(Slot::Input) {
        let is_own = operands.aliases(slot, Slot::Output);
        all.push(if is_own { None } else { Some(operands.source(slot, shared(operands, slot, length)?)?) });
    }
    let mut output = operands.target(Slot::Output, length)?;
    kernel(move |_| {
        parallel::pieces(None, output.get(), PIECE, |piece, _, y| {
            // The start is -0, because 0 would turn a sum of -0 into 0.
            let mut sum = [-0.0f32; PIECE];
            let sum = &mut sum[..y.len()];
            for branch in &all {
                match branch {
                    None => wide(|| sum.iter_mut().zip(&*y).for_each(|(sum, y)| *sum += y)),
                    Some(branch) => add_cyclic(sum, branch.get(), piece * PIECE),
                }
            }
            y.copy_from_slice(sum);
            0.0
        });
    })
}

/// Adds `x`, repeated cyclically, from element `start` on.
fn add_cyclic(mut y: &mut [f32], x: &[f32], start: usize) {
    let mut at = start % x.len();
    while !y.is_empty() {
        let (head, tail) = y.split_at_mut(y.len().min(x.len() - at));
        wide(|| head.iter_mut().zip(&x[at..]).for_each(|(y, x)| *y += x));
        (y, at) = (tail, 0);
    }
}
