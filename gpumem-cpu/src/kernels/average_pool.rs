//! Mean over windows, `y[o] = sum over k of x[at(o, k)] / size[o]`. The size of a sliding window counts the padding, but not
//! what `ceil_mode` lets a window reach beyond it, or leaves the padding out. Adaptive windows are as many rectangles as the
//! output has elements: row `i` of H' averages rows `floor(i * H / H')` up to, not including, `ceil((i + 1) * H / H')`; columns
//! likewise.
//!
//! Backward: every element of the window gets `dy[o] / size[o]`.

use super::max_pool::required;
use super::window::Window;
use super::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{AveragePool, Windows};
use rayon::prelude::*;
use std::ops::Range;

/// What the average poolings have in common: a rectangle of the input for each position, and the number it is divided by.
trait Rectangles: Send + Sync + 'static {
    /// Height and width of the input and of the output.
    fn sizes(&self) -> [[usize; 2]; 2];
    /// Rows, columns and divisor of a position.
    fn rectangle(&self, row: usize, column: usize) -> ([Range<usize>; 2], usize);
}

/// Means over rectangles of each plane.
fn forward_rectangles(rectangles: impl Rectangles, planes: u64, operands: &mut Operands<'_>) -> Bound {
    let [[height, width], [tall, wide]] = rectangles.sizes();
    let input = operands.source(Slot::Input(0), count(&[planes, height as u64, width as u64]))?;
    let mut output = operands.target(Slot::Output, count(&[planes, tall as u64, wide as u64]))?;
    kernel(move |_| {
        let planes = output.get().par_chunks_mut(tall * wide).zip(input.get().par_chunks(height * width));
        planes.for_each(|(y, x)| {
            for (o, y) in y.iter_mut().enumerate() {
                let ([rows, columns], divisor) = rectangles.rectangle(o / wide, o % wide);
                let lines = rows.map(|row| &x[row * width..][columns.clone()]);
                let sum: f64 = lines.flatten().map(|&x| f64::from(x)).sum();
                *y = (sum / divisor as f64) as f32;
            }
        });
    })
}

/// Spreads each position's gradient over its rectangle.
fn backward_rectangles(rectangles: impl Rectangles, planes: u64, operands: &mut Operands<'_>) -> Bound {
    let [[height, width], [tall, wide]] = rectangles.sizes();
    let gradient = operands.source(Slot::Gradient, count(&[planes, tall as u64, wide as u64]))?;
    let (accumulate, mut target) = required(operands, count(&[planes, height as u64, width as u64]))?;
    kernel(move |_| {
        let planes = target.get().par_chunks_mut(height * width).zip(gradient.get().par_chunks(tall * wide));
        planes.for_each(|(dx, dy)| {
            if !accumulate {
                dx.fill(0.0);
            }
            for (o, dy) in dy.iter().enumerate() {
                let ([rows, columns], divisor) = rectangles.rectangle(o / wide, o % wide);
                let share = dy / divisor as f32;
                for row in rows {
                    dx[row * width..][columns.clone()].iter_mut().for_each(|dx| *dx += share);
                }
            }
        });
    })
}

struct Pool {
    window: Window,
    padded: bool,
}

impl Rectangles for Pool {
    fn sizes(&self) -> [[usize; 2]; 2] {
        [self.window.image, self.window.positions]
    }

    fn rectangle(&self, row: usize, column: usize) -> ([Range<usize>; 2], usize) {
        let inside = [self.window.covered(0, row), self.window.covered(1, column)];
        let Window { image, kernel, stride, padding, .. } = self.window;
        let with_padding = |axis: usize, o: usize| {
            let start = o * stride[axis];
            (start + kernel[axis]).min(image[axis] + 2 * padding[axis]).saturating_sub(start)
        };
        let size = if self.padded {
            with_padding(0, row) * with_padding(1, column)
        } else {
            inside[0].len() * inside[1].len()
        };
        (inside, size.max(1))
    }
}

struct Adaptive {
    input: [usize; 2],
    output: [usize; 2],
}

impl Rectangles for Adaptive {
    fn sizes(&self) -> [[usize; 2]; 2] {
        [self.input, self.output]
    }

    fn rectangle(&self, row: usize, column: usize) -> ([Range<usize>; 2], usize) {
        let range = |axis: usize, o: usize| {
            let (input, output) = (self.input[axis], self.output[axis]);
            o * input / output..((o + 1) * input).div_ceil(output)
        };
        let ranges = [range(0, row), range(1, column)];
        let size = ranges[0].len() * ranges[1].len();
        (ranges, size)
    }
}

/// What `$run`, for either kind of windows, gives.
macro_rules! for_windows {
    ($op:expr, $operands:expr, $run:ident) => {{
        let planes = $operands.batch().saturating_mul($op.channels);
        match &$op.windows {
            Windows::Sliding { window, count_include_pad } => {
                let window = Window::new([$op.input, $op.output], window)?;
                $run(Pool { window, padded: *count_include_pad }, planes, $operands)
            }
            Windows::Adaptive => {
                let [input, output] = [$op.input, $op.output].map(|size| size.map(|side| count(&[side])));
                $run(Adaptive { input, output }, planes, $operands)
            }
        }
    }};
}

/// `y` from `x`.
pub(super) fn forward(op: &AveragePool, operands: &mut Operands<'_>) -> Bound {
    for_windows!(op, operands, forward_rectangles)
}

/// `dx` from `dy`.
pub(super) fn backward(op: &AveragePool, operands: &mut Operands<'_>) -> Bound {
    for_windows!(op, operands, backward_rectangles)
}
