//! Permutation of the axes of a value.
//!
//! Backward: the inverse permutation of the gradient.

use crate::kernels::conv::max_pool::required;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{Moved, Permute};

/// The side of a tile, in elements. Tiles keep both the read and the written elements in the cache.
const TILE: usize = 32;

/// The source of each element, as axes of the output, outermost first.
struct Plan {
    axes: Vec<Axis>,
    /// The axis whose neighbouring elements are contiguous in the input.
    near: usize,
}

struct Axis {
    length: usize,
    from: usize,
}

fn plan(op: &Permute, operands: &Operands<'_>) -> Result<(Plan, usize), Error> {
    if !op.is_sound() || op.input.dims().contains(&0) {
        return Err(Error::Damaged("axes in another order that are not those of the value"));
    }
    let length = count(&[operands.batch(), count(op.input.dims()) as u64]);
    let moved = op.moved(operands.batch());
    let near = moved.iter().position(|axis| axis.from == 1).unwrap_or(moved.len() - 1);
    let axis = |&Moved { length, from, .. }: &Moved| Axis { length: count(&[length]), from: count(&[from]) };
    Ok((Plan { axes: moved.iter().map(axis).collect(), near }, length))
}

impl Plan {
    /// Writes all of `y`, which covers the axes from `first` on. Its elements start at `x[from]`.
    fn fill(&self, first: usize, x: &[f32], from: usize, y: &mut [f32], accumulate: bool) {
        let (axis, last) = (&self.axes[first], self.axes.len() - 1);
        if first == last {
            parallel::store(y, accumulate, |i| x[from + i * axis.from]);
        } else if first + 1 == last && first == self.near {
            self.fill_tiles(x, from, y, accumulate);
        } else {
            let inner = y.len() / axis.length;
            for (i, y) in y.chunks_exact_mut(inner).enumerate() {
                self.fill(first + 1, x, from + i * axis.from, y, accumulate);
            }
        }
    }

    /// Writes the last two axes, of which the first is contiguous in `x` and the second in `y`.
    fn fill_tiles(&self, x: &[f32], from: usize, y: &mut [f32], accumulate: bool) {
        let [.., near, last] = &self.axes[..] else { return };
        for rows in (0..near.length).step_by(TILE) {
            for columns in (0..last.length).step_by(TILE) {
                for row in rows..near.length.min(rows + TILE) {
                    let to = &mut y[row * last.length..][columns..last.length.min(columns + TILE)];
                    parallel::store(to, accumulate, |i| x[from + row + (columns + i) * last.from]);
                }
            }
        }
    }
}

/// Computes `y` from `x`.
pub(in crate::kernels) fn forward(op: &Permute, operands: &mut Operands<'_>) -> Bound {
    let (plan, length) = plan(op, operands)?;
    let input = operands.source(Slot::Input(0), length)?;
    let mut output = operands.target(Slot::Output, length)?;
    kernel(move |_| run(&plan, input.get(), output.get(), false))
}

/// Computes `dx` from `dy`.
pub(in crate::kernels) fn backward(op: &Permute, operands: &mut Operands<'_>) -> Bound {
    let (_, length) = plan(op, operands)?;
    let (plan, _) = plan(&op.inverse(), operands)?;
    let gradient = operands.source(Slot::Gradient, length)?;
    let (accumulate, mut target) = required(operands, length)?;
    kernel(move |_| run(&plan, gradient.get(), target.get(), accumulate))
}

fn run(plan: &Plan, x: &[f32], y: &mut [f32], accumulate: bool) {
    if plan.axes.len() == 1 {
        return plan.fill(0, x, 0, y, accumulate);
    }
    let outermost = &plan.axes[0];
    // A transposed matrix is one piece, which is written in tiles.
    if plan.axes.len() == 2 && plan.near == 0 {
        return plan.fill_tiles(x, 0, y, accumulate);
    }
    let inner = y.len() / outermost.length;
    parallel::pieces(None, y, inner, |piece, _, y| {
        plan.fill(1, x, piece * outermost.from, y, accumulate);
        0.0
    });
}
