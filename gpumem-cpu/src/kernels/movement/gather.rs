//! Embedding: one row of a table for each token, `y[b, t, :] = weight[token[b, t], :]`.
//!
//! Backward: `dweight[v, :]` is the sum of `dy[b, t, :]` over the positions whose token is v. For the padding token it is 0.

use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Gather;
use rayon::prelude::*;

/// The parts of the table in the backward pass. Each part looks at every token, and adds those that belong to it.
const PARTS: usize = 16;

/// Returns the elements of tokens, table and output, and the width of a row.
fn resolve(op: &Gather, operands: &Operands<'_>) -> ([usize; 3], usize) {
    let tokens = count(&[operands.batch(), op.count]);
    let width = count(&[op.width]);
    ([tokens, count(&[op.rows, op.width]), tokens.saturating_mul(width)], width)
}

/// Computes `y` from the tokens. They were checked before the step; one beyond the table would give a row of NaN.
pub(in crate::kernels) fn forward(op: &Gather, operands: &mut Operands<'_>) -> Bound {
    let ([tokens, table, output], width) = resolve(op, operands);
    let tokens = operands.words(Slot::Input(0), tokens)?;
    let weight = operands.source(Slot::Input(1), table)?;
    let mut output = operands.target(Slot::Output, output)?;
    kernel(move |_| {
        let (tokens, weight) = (tokens.get(), weight.get());
        parallel::pieces(None, output.get(), width, |row, _, y| {
            match weight.chunks_exact(width).nth(tokens[row] as usize) {
                Some(row) => y.copy_from_slice(row),
                None => y.fill(f32::NAN),
            }
            0.0
        });
    })
}

/// Computes `dweight` from `dy` and the tokens.
pub(in crate::kernels) fn backward(op: &Gather, operands: &mut Operands<'_>) -> Bound {
    let ([tokens, table, output], width) = resolve(op, operands);
    let tokens = operands.words(Slot::Input(0), tokens)?;
    let gradient = operands.source(Slot::Gradient, output)?;
    let out = operands.gradient(Slot::InputGradient(1), table)?;
    let mut out = out.ok_or(Error::Damaged("a backward operation writes no gradient"))?;
    let padding = op.padding;
    kernel(move |_| {
        let (tokens, dy, accumulate) = (tokens.get(), gradient.get(), out.accumulate);
        let table = out.target.get();
        let rows = (table.len() / width).div_ceil(PARTS);
        table.par_chunks_mut(rows * width).enumerate().for_each(|(part, table)| {
            if !accumulate {
                table.fill(0.0);
            }
            for (&token, dy) in tokens.iter().zip(dy.chunks_exact(width)) {
                if padding == Some(token.into()) {
                    continue;
                }
                let Some(row) = (token as usize).checked_sub(part * rows) else { continue };
                if let Some(sum) = table.chunks_exact_mut(width).nth(row) {
                    sum.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
                }
            }
        });
    })
}
