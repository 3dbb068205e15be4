//! Nearest-neighbour upsampling: repeated rows and columns, `y[h, w] = x[h / SH, w / SW]` for scales SH and SW.
//!
//! Backward: `dx[h, w]` is the sum of `dy` over its SH x SW copies.

use crate::kernels::conv::max_pool::required;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Resize;

/// Returns the scales [SH, SW], the input's W, and the elements of input and output.
fn resolve(op: &Resize, operands: &Operands<'_>) -> ([usize; 2], usize, [usize; 2]) {
    let scale = op.scale_factor.map(|scale| count(&[scale]));
    let [height, width] = op.input;
    let input = count(&[operands.batch(), op.channels, height, width]);
    let output = input.saturating_mul(scale[0]).saturating_mul(scale[1]);
    (scale, count(&[width]), [input, output])
}

/// Computes `y` from `x`, one row of `y` at a time.
pub(in crate::kernels) fn forward(op: &Resize, operands: &mut Operands<'_>) -> Bound {
    let ([tall, wide], width, [input, output]) = resolve(op, operands);
    let input = operands.source(Slot::Input(0), input)?;
    let mut output = operands.target(Slot::Output, output)?;
    kernel(move |_| {
        let x = input.get();
        // Rows are numbered across all planes. SH divides the rows of an output plane, so row / SH is the input's row.
        parallel::pieces(None, output.get(), width * wide, |row, _, y| {
            let x = &x[row / tall * width..][..width];
            y.chunks_exact_mut(wide).zip(x).for_each(|(y, &x)| y.fill(x));
            0.0
        });
    })
}

/// Computes `dx` from `dy`, one row of `dx` at a time.
pub(in crate::kernels) fn backward(op: &Resize, operands: &mut Operands<'_>) -> Bound {
    let ([tall, wide], width, [input, output]) = resolve(op, operands);
    let gradient = operands.source(Slot::Gradient, output)?;
    let (accumulate, mut target) = required(operands, input)?;
    kernel(move |_| {
        let dy = gradient.get();
        parallel::pieces(None, target.get(), width, |row, _, dx| {
            let copies = &dy[row * tall * width * wide..][..tall * width * wide];
            parallel::store(dx, accumulate, |column| {
                let lines = copies.chunks_exact(width * wide);
                lines.flat_map(|line| &line[column * wide..][..wide]).map(|&dy| f64::from(dy)).sum::<f64>() as f32
            });
            0.0
        });
    })
}
