//! Relative position bias: a learned number for each head and each distance between a query and a key, `y[h, i, j] = table[row(i - j), h]`.
//!
//! Backward: each element of the table's gradient is the sum of `dy[h, i, j]` over all pairs with its distances.

use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel::with_sums;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::RelativeBias;
use rayon::prelude::*;

/// The row of the table for each pair of positions.
struct Rows {
    /// The row for each vertical and horizontal distance, from the smallest distance on.
    table: Vec<u32>,
    width: usize,
    height: usize,
}

impl Rows {
    fn new(op: &RelativeBias) -> Rows {
        let [height, width] = op.size.map(|side| count(&[side]));
        Rows { table: op.table(), width, height }
    }

    fn of(&self, query: usize, key: usize) -> usize {
        let Rows { width, height, .. } = *self;
        let down = query / width + height - 1 - key / width;
        let across = query % width + width - 1 - key % width;
        self.table[down * (2 * width - 1) + across] as usize
    }
}

/// Returns the numbers of heads and positions, and the elements of the table and of `y`.
fn resolve(op: &RelativeBias) -> Result<[usize; 4], Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("distances of positions that there are not"));
    }
    let [heads, positions] = [op.heads, op.positions()].map(|size| count(&[size]));
    let pairs = count(&[op.positions(), op.positions()]);
    Ok([heads, positions, count(&[op.rows(), op.heads]), heads.saturating_mul(pairs)])
}

/// Computes `y` from the table.
pub(in crate::kernels) fn forward(op: &RelativeBias, operands: &mut Operands<'_>) -> Bound {
    let [heads, positions, table, output] = resolve(op)?;
    let table = operands.source(Slot::Input(0), table)?;
    let mut output = operands.target(Slot::Output, output)?;
    let rows = Rows::new(op);
    kernel(move |_| {
        let table = table.get();
        output.get().par_chunks_mut(positions).enumerate().for_each(|(row, y)| {
            let (head, query) = (row / positions, row % positions);
            y.iter_mut().enumerate().for_each(|(key, y)| *y = table[rows.of(query, key) * heads + head]);
        });
    })
}

/// Computes the table's gradient from `dy`.
pub(in crate::kernels) fn backward(op: &RelativeBias, operands: &mut Operands<'_>) -> Bound {
    let [heads, positions, table, output] = resolve(op)?;
    let gradient = operands.source(Slot::Gradient, output)?;
    let out = operands.gradient(Slot::InputGradient(0), table)?;
    let mut out = out.ok_or(Error::Damaged("a backward operation writes no gradient"))?;
    let (rows, count) = (Rows::new(op), count(&[op.rows()]));
    kernel(move |_| {
        let dy = gradient.get();
        with_sums(heads * count, |all| {
            let of_heads = all.par_chunks_mut(count).zip(dy.par_chunks(positions * positions));
            of_heads.for_each(|(sums, dy)| {
                for (query, dy) in dy.chunks_exact(positions).enumerate() {
                    dy.iter().enumerate().for_each(|(key, &dy)| sums[rows.of(query, key)] += f64::from(dy));
                }
            });
            for (row, out_row) in out.target.get().chunks_exact_mut(heads).enumerate() {
                for (out_element, sums) in out_row.iter_mut().zip(all.chunks_exact(count)) {
                    let before = if out.accumulate { *out_element } else { 0.0 };
                    *out_element = before + sums[row] as f32;
                }
            }
        });
    })
}
