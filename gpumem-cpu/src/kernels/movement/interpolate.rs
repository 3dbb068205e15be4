//! Interpolation of a map to another size: row `o` of `y` is at `start + o * step` in `x`, columns likewise.
//!
//! An element of `y` is the element of `x` at or before that position, or a weighted sum of the two or four around it. Elements beyond the edge are
//! those at the edge.
//!
//! Backward: `dx[h, w]` is the sum of `dy` over all elements that read it, with the same weights.

use crate::kernels::conv::max_pool::required;
use crate::kernels::movement::separable_sum::{Taps, sums};
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{Interpolate, Interpolation};

/// Returns the heights and widths of the input and the output.
///
/// # Errors
/// Maps without elements.
fn sizes(op: &Interpolate) -> Result<[[usize; 2]; 2], Error> {
    let sizes = [op.input, op.output];
    if op.channels == 0 || sizes.as_flattened().contains(&0) {
        return Err(Error::Damaged("an interpolation has no elements"));
    }
    Ok(sizes.map(|size| size.map(|side| count(&[side]))))
}

/// Returns the elements of the input and the output.
fn lengths(op: &Interpolate, operands: &Operands<'_>) -> [usize; 2] {
    [op.input, op.output].map(|[height, width]| count(&[operands.batch(), op.channels, height, width]))
}

/// Returns the elements that each row or column of the output reads, with their weights. The sizes of the tensors have been checked.
fn taps(op: &Interpolate, axis: usize) -> Taps {
    let [input, output] = [op.input, op.output].map(|size| count(&[size[axis]]));
    let (start, step) = (op.start[axis], op.step[axis]);
    // A damaged program may have any numbers here, so the position is clamped.
    let inside = |place: i64| place.clamp(0, input as i64 - 1) as usize;
    match op.interpolation {
        Interpolation::Nearest => Taps::new((0..output).map(|o| {
            let middle = if start > 0.0 { 0.5 } else { 0.0 };
            let place = (o as f32 + middle) * step as f32;
            [(inside(place.floor() as i64), 1.0)]
        })),
        Interpolation::Linear => Taps::new((0..output).map(|o| {
            let place = (start + o as f64 * step).max(0.0);
            let (whole, rest) = (place.floor(), place - place.floor());
            let at = |next: i64| inside((whole as i64).saturating_add(next));
            [(at(0), 1.0 - rest), (at(1), rest)]
        })),
        Interpolation::Cubic => Taps::new((0..output).map(|o| {
            let place = start + o as f64 * step;
            let (whole, rest) = (place.floor(), place - place.floor());
            let at = |next: i64| inside((whole as i64).saturating_add(next));
            let [before, first, second, after] = cubic(rest);
            [(at(-1), before), (at(0), first), (at(1), second), (at(2), after)]
        })),
    }
}

/// Returns the weights of four elements for a position that is `rest` after the second of them.
fn cubic(rest: f64) -> [f64; 4] {
    const A: f64 = -0.75;
    let near = |distance: f64| ((A + 2.0) * distance - (A + 3.0)) * distance * distance + 1.0;
    let far = |distance: f64| ((A * distance - 5.0 * A) * distance + 8.0 * A) * distance - 4.0 * A;
    [far(1.0 + rest), near(rest), near(1.0 - rest), far(2.0 - rest)]
}

/// Computes `y` from `x`.
pub(in crate::kernels) fn forward(op: &Interpolate, operands: &mut Operands<'_>) -> Bound {
    let [from, _] = sizes(op)?;
    let [input, output] = lengths(op, operands);
    let input = operands.source(Slot::Input(0), input)?;
    let mut output = operands.target(Slot::Output, output)?;
    let axes = [0, 1].map(|axis| taps(op, axis));
    kernel(move |_| sums(&axes, from, input.get(), (false, output.get())))
}

/// Computes `dx` from `dy`.
pub(in crate::kernels) fn backward(op: &Interpolate, operands: &mut Operands<'_>) -> Bound {
    let [to, from] = sizes(op)?;
    let [input, output] = lengths(op, operands);
    let gradient = operands.source(Slot::Gradient, output)?;
    let (accumulate, mut target) = required(operands, input)?;
    let axes = [0, 1].map(|axis| taps(op, axis).transposed(to[axis]));
    kernel(move |_| sums(&axes, from, gradient.get(), (accumulate, target.get())))
}
