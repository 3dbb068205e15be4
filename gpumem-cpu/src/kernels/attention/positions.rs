//! Position table: one row for each current time step, `y[t, :] = x[p + t, :]`. The state holds `p`, the number of earlier steps.

use crate::kernels::elementwise::dropout;
pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Source, count};
use gpumem_core::error::Error;
use gpumem_core::program::ops::Positions;
use gpumem_core::program::{Slot, StateWord};

/// The number of time steps of a sequence before the current ones.
pub(in crate::kernels) struct Position(Source<u32>);

impl Position {
    /// Returns the position for an operation that reads `State`.
    pub(in crate::kernels) fn new(operands: &Operands<'_>) -> Result<Position, Error> {
        Ok(Position(operands.words(Slot::State, dropout::STATE_WORDS)?))
    }

    pub(in crate::kernels) fn get(&self) -> u64 {
        dropout::step_and_seed(self.0.get()).0
    }

    /// Returns the number of steps, out of `steps` current ones, that belong to the sequence.
    pub(in crate::kernels) fn at_hand(&self, steps: usize) -> usize {
        steps.min(self.0.get()[StateWord::AT_HAND] as usize)
    }
}

/// Computes `y` from the table.
pub(in crate::kernels) fn forward(op: &Positions, operands: &mut Operands<'_>) -> Bound {
    let [rows, width] = [op.rows, op.width].map(|size| count(&[size]));
    if rows == 0 || width == 0 {
        return Err(Error::Damaged("a table of positions has no rows"));
    }
    let position = Position::new(operands)?;
    let table = operands.source(Slot::Input(0), count(&[op.rows, op.width]))?;
    let mut output = operands.target(Slot::Output, count(&[op.count, op.width]))?;
    kernel(move |_| {
        let first = usize::try_from(position.get()).unwrap_or(usize::MAX);
        for (step, y) in output.get().chunks_exact_mut(width).enumerate() {
            let row = first.saturating_add(step).min(rows - 1);
            y.copy_from_slice(&table.get()[row * width..][..width]);
        }
    })
}
