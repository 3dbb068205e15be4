//! Rotary position embedding: heads rotated by angles that grow with the time step.
//!
//! Backward: the gradient rotated back.

use crate::kernels::attention::positions::Position;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Pair, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Rotary;

/// Returns the elements of the batch, the rows of a sample, and the elements of a row.
fn resolve(op: &Rotary, operands: &Operands<'_>) -> Result<[usize; 3], Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("heads that turn and are not in their rows"));
    }
    let [row, elements] = [op.shape.last(), op.shape.elements().unwrap_or(0)];
    let length = count(&[operands.batch(), elements]);
    Ok([length, count(&[elements / row.max(1)]), count(&[row])])
}

/// Rotates the rows of `x` into `y`, or those of `y` in place if there is no `x`. With `sign` -1 it rotates back.
fn turned(
    op: &Rotary,
    (mut pair, accumulate): (Pair, bool),
    before: Option<Position>,
    [steps, row]: [usize; 2],
    sign: f64,
) -> Bound {
    let (turns, op) = (op.turns(f64::powf), op.clone());
    let places: Vec<[usize; 2]> = (0..op.dims / 2).map(|pair| op.pair(pair).map(|place| place as usize)).collect();
    let (heads, width) = (op.heads as usize, op.width as usize);
    kernel(move |_| {
        let before = before.as_ref().map_or(0, Position::get);
        let (x, y) = pair.get();
        parallel::pieces(x, y, row, |index, x, y| {
            parallel::with_scratch(if accumulate { y.len() } else { 0 }, |sum| {
                sum.copy_from_slice(&y[..sum.len()]);
                if let Some(x) = x {
                    y.copy_from_slice(x);
                }
                for (number, (turn, &[first, apart])) in turns.iter().zip(&places).enumerate() {
                    // A full turn has 2^64 parts, so a wrapped product loses only whole turns.
                    let number = op.number(before.wrapping_add((index % steps) as u64), number as u64);
                    let part = turn.wrapping_mul(number) as i64;
                    let (sin, cos) = (part as f64 * (std::f64::consts::PI / 9_223_372_036_854_775_808.0)).sin_cos();
                    let (sin, cos) = ((sign * sin) as f32, cos as f32);
                    for head in y.chunks_exact_mut(width).take(heads) {
                        let (a, b) = (head[first], head[first + apart]);
                        head[first] = a * cos - b * sin;
                        head[first + apart] = b * cos + a * sin;
                    }
                }
                y.iter_mut().zip(sum).for_each(|(y, sum)| *y += *sum);
            });
            0.0
        });
    })
}

/// Computes `y` from `x`, in place or not.
pub(in crate::kernels) fn forward(op: &Rotary, operands: &mut Operands<'_>) -> Bound {
    let [length, steps, row] = resolve(op, operands)?;
    let before = op.follows.then(|| Position::new(operands)).transpose()?;
    turned(op, (operands.pair(Slot::Input(0), Slot::Output, length)?, false), before, [steps, row], 1.0)
}

/// Computes `dx` from `dy`, in place or not.
pub(in crate::kernels) fn backward(op: &Rotary, operands: &mut Operands<'_>) -> Bound {
    let [length, steps, row] = resolve(op, operands)?;
    turned(op, operands.gradients(0, length)?, None, [steps, row], -1.0)
}
