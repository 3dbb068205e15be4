//! Padding: rows and columns added around a map, or removed. `y[o, p] = x[row(o), column(p)]`, or a constant if there is no such element.
//!
//! Backward: `dx[h, w]` is the sum of `dy` over all elements that copy `x[h, w]`.

use crate::kernels::conv::max_pool::required;
use crate::kernels::movement::separable_sum::{Taps, sums};
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{Beyond, Pad};

/// Returns the heights and widths of the input and the output, and their numbers of elements.
fn sizes(op: &Pad, operands: &Operands<'_>) -> Result<([[usize; 2]; 2], [usize; 2]), Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("a padding is wider than its mode allows"));
    }
    let sizes = [op.input, op.sides()];
    let lengths = sizes.map(|[height, width]| count(&[operands.batch(), op.channels, height, width]));
    Ok((sizes.map(|size| size.map(|side| count(&[side]))), lengths))
}

/// Returns the row (or column) of the input for each row of the output. `None` for rows in constant padding.
fn places(op: &Pad, axis: usize) -> Vec<Option<usize>> {
    let (size, before) = (op.input[axis] as i64, op.before()[axis]);
    let outputs = 0..op.sides()[axis] as i64;
    let place = |o: i64| {
        let at = o.saturating_sub(before);
        let at = match op.beyond {
            Beyond::Constant => at,
            Beyond::Reflect if at < 0 => -at,
            Beyond::Reflect if at >= size => 2 * (size - 1) - at,
            Beyond::Reflect => at,
            Beyond::Replicate => at.clamp(0, size - 1),
            Beyond::Circular => at.rem_euclid(size),
        };
        (0..size).contains(&at).then_some(at as usize)
    };
    outputs.map(place).collect()
}

/// Computes `y` from `x`, one row of `y` at a time.
pub(in crate::kernels) fn forward(op: &Pad, operands: &mut Operands<'_>) -> Bound {
    let ([[height, width], [tall, wide]], [input, output]) = sizes(op, operands)?;
    let input = operands.source(Slot::Input(0), input)?;
    let mut output = operands.target(Slot::Output, output)?;
    let ([rows, columns], value) = ([0, 1].map(|axis| places(op, axis)), op.value as f32);
    kernel(move |_| {
        let x = input.get();
        parallel::pieces(None, output.get(), wide, |row, _, y| {
            match rows[row % tall] {
                Some(h) => {
                    let x = &x[(row / tall * height + h) * width..][..width];
                    parallel::store(y, false, |p| columns[p].map_or(value, |w| x[w]));
                }
                None => y.fill(value),
            }
            0.0
        });
    })
}

/// Computes `dx` from `dy`.
pub(in crate::kernels) fn backward(op: &Pad, operands: &mut Operands<'_>) -> Bound {
    let ([to, from], [input, output]) = sizes(op, operands)?;
    let gradient = operands.source(Slot::Gradient, output)?;
    let (accumulate, mut target) = required(operands, input)?;
    let axes = [0, 1].map(|axis| {
        let taps = places(op, axis).into_iter().map(|place| place.map(|place| (place, 1.0)));
        Taps::new(taps).transposed(to[axis])
    });
    kernel(move |_| sums(&axes, from, gradient.get(), (accumulate, target.get())))
}
