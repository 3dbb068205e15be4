//! Running statistics from before a step, in case the step is skipped. See `gpumem_core::program::Action::SaveStatistics`.

use crate::kernels::elementwise::dropout::STATE_WORDS;
use crate::kernels::{Bound, kernel};
use crate::operands::Operands;
use gpumem_core::error::Error;
use gpumem_core::program::{Slot, StateWord};
use std::ops::Range;

/// Returns the range of a running statistic in the copy: `length` elements from `first` on.
fn place(first: u64, length: usize, there: usize) -> Result<Range<usize>, Error> {
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    let range = first..first.saturating_add(length);
    if range.end > there {
        return Err(Error::Damaged("running statistics are copied to less memory than they need"));
    }
    Ok(range)
}

/// Binds the copy of a running statistic. If a batch is split, only its first part copies.
pub(in crate::kernels) fn save(first: u64, operands: &mut Operands<'_>) -> Bound {
    let length = operands.length(Slot::Buffer(0))?;
    let statistic = operands.source(Slot::Buffer(0), length)?;
    let there = operands.any_length(Slot::Saved(0)).unwrap_or(0);
    let range = place(first, length, there)?;
    let mut saved = operands.target(Slot::Saved(0), there)?;
    let state = operands.words(Slot::State, STATE_WORDS)?;
    let parts = operands.descent().micro_batches as u32;
    kernel(move |_| {
        // Parts are counted over all ranks.
        if parts < 2 || state.get()[StateWord::PART].is_multiple_of(parts) {
            saved.get()[range.clone()].copy_from_slice(statistic.get());
        }
    })
}

/// Binds the restoration of a running statistic after a skipped step.
pub(in crate::kernels) fn restore(first: u64, operands: &mut Operands<'_>) -> Bound {
    let there = operands.any_length(Slot::Saved(0)).unwrap_or(0);
    let saved = operands.source(Slot::Saved(0), there)?;
    let length = operands.any_length(Slot::Buffer(0)).unwrap_or(0);
    let range = place(first, length, there)?;
    let mut statistic = operands.target(Slot::Buffer(0), length)?;
    let state = operands.words(Slot::State, STATE_WORDS)?;
    kernel(move |_| {
        if state.get()[StateWord::Overflow as usize] != 0 {
            statistic.get().copy_from_slice(&saved.get()[range.clone()]);
        }
    })
}
