//! One row of a table for each position, `y[t, :] = weight[t, :]`, one for the whole batch.
//!
//! Backward: `dweight[t, :] = dy[t, :]` for the T rows that are used, and 0 for the others.

use super::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::layers::PositionEmbedding;
use gpumem_core::program::Slot;

/// Lengths of the table and of its used part.
fn resolve(layer: &PositionEmbedding) -> Result<[usize; 2], Error> {
    if layer.steps > layer.positions {
        return Err(Error::Damaged("a position embedding has fewer positions than its input has steps"));
    }
    Ok([layer.positions, layer.steps].map(|rows| count(&[rows, layer.embedding_dim])))
}

/// `y` from the table.
pub(super) fn forward(layer: &PositionEmbedding, operands: &mut Operands<'_>) -> Bound {
    let [table, used] = resolve(layer)?;
    let weight = operands.source(Slot::Parameter(0), table)?;
    let mut output = operands.target(Slot::Output, used)?;
    kernel(move |_| output.get().copy_from_slice(&weight.get()[..used]))
}

/// `dweight` from `dy`.
pub(super) fn backward(layer: &PositionEmbedding, operands: &mut Operands<'_>) -> Bound {
    let [table, used] = resolve(layer)?;
    let gradient = operands.source(Slot::Gradient, used)?;
    let out = operands.gradient(Slot::ParameterGradient(0), table)?;
    let mut out = out.ok_or(Error::Damaged("a backward operation writes no gradient"))?;
    kernel(move |_| {
        let dy = gradient.get();
        let (rows, rest) = out.target.get().split_at_mut(used);
        if out.accumulate {
            rows.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
        } else {
            rows.copy_from_slice(dy);
            rest.fill(0.0);
        }
    })
}
