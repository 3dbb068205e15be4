//! Average pooling: the mean over windows, `y[o] = sum over k of x[at(o, k)] / size[o]`.
//!
//! The size of a sliding window counts the padding, but not the elements beyond it that `ceil_mode` adds; or it leaves out the padding. Adaptive
//! windows are as many boxes as the output has elements: row `i` of H' averages rows `floor(i * H / H')` up to, not including,
//! `ceil((i + 1) * H / H')`; planes and columns likewise.
//!
//! Backward: every element of the window gets `dy[o] / size[o]`.

use crate::kernels::conv::max_pool::required;
use crate::kernels::movement::window::Window;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::program::Slot;
use gpumem_core::program::ops::{AveragePool, Windows, of_volume};
use rayon::prelude::*;
use std::ops::Range;

/// The windows of an average pooling: a box of the input for each position, and the divisor of its sum. Maps are volumes of one plane.
trait Boxes: Send + Sync + 'static {
    /// Returns depth, height and width of the input and of the output.
    fn sizes(&self) -> [[usize; 3]; 2];
    /// Returns the planes, rows and columns of the box of a position, and its divisor.
    fn covered(&self, position: [usize; 3]) -> ([Range<usize>; 3], usize);
}

/// Returns the position of element `o` of the output.
fn position([_, tall, wide]: [usize; 3], o: usize) -> [usize; 3] {
    [o / (tall * wide), o / wide % tall, o % wide]
}

/// Computes the means over boxes of each volume.
fn forward_boxes(boxes: impl Boxes, volumes: u64, operands: &mut Operands<'_>) -> Bound {
    let [input_size, output_size] = boxes.sizes();
    let [_, height, width] = input_size;
    let elements = |size: [usize; 3]| size.iter().product::<usize>();
    let input = operands.source(Slot::Input(0), count(&[volumes, elements(input_size) as u64]))?;
    let mut output = operands.target(Slot::Output, count(&[volumes, elements(output_size) as u64]))?;
    kernel(move |_| {
        let volumes = input.get().par_chunks(elements(input_size));
        output.get().par_chunks_mut(elements(output_size)).zip(volumes).for_each(|(y, x)| {
            for (o, y) in y.iter_mut().enumerate() {
                let ([planes, rows, columns], divisor) = boxes.covered(position(output_size, o));
                let mut sum = 0.0;
                for line in planes.flat_map(|plane| rows.clone().map(move |row| plane * height + row)) {
                    x[line * width..][columns.clone()].iter().for_each(|&x| sum += f64::from(x));
                }
                *y = (sum / divisor as f64) as f32;
            }
        });
    })
}

/// Spreads the gradient of each position over its box.
fn backward_boxes(boxes: impl Boxes, volumes: u64, operands: &mut Operands<'_>) -> Bound {
    let [input_size, output_size] = boxes.sizes();
    let [_, height, width] = input_size;
    let elements = |size: [usize; 3]| size.iter().product::<usize>();
    let gradient = operands.source(Slot::Gradient, count(&[volumes, elements(output_size) as u64]))?;
    let (accumulate, mut target) = required(operands, count(&[volumes, elements(input_size) as u64]))?;
    kernel(move |_| {
        let volumes = gradient.get().par_chunks(elements(output_size));
        target.get().par_chunks_mut(elements(input_size)).zip(volumes).for_each(|(dx, dy)| {
            if !accumulate {
                dx.fill(0.0);
            }
            for (o, dy) in dy.iter().enumerate() {
                let ([planes, rows, columns], divisor) = boxes.covered(position(output_size, o));
                let share = dy / divisor as f32;
                for line in planes.flat_map(|plane| rows.clone().map(move |row| plane * height + row)) {
                    dx[line * width..][columns.clone()].iter_mut().for_each(|dx| *dx += share);
                }
            }
        });
    })
}

struct Pool {
    window: Window<3>,
    padded: bool,
}

impl Boxes for Pool {
    fn sizes(&self) -> [[usize; 3]; 2] {
        [self.window.image, self.window.positions]
    }

    fn covered(&self, position: [usize; 3]) -> ([Range<usize>; 3], usize) {
        let inside = [0, 1, 2].map(|axis| self.window.covered(axis, position[axis]));
        let Window { image, kernel, stride, padding, .. } = self.window;
        let counted = [0, 1, 2].map(|axis| {
            if !self.padded {
                return inside[axis].len();
            }
            let start = position[axis] * stride[axis];
            (start + kernel[axis]).min(image[axis] + 2 * padding[axis]).saturating_sub(start)
        });
        (inside, counted.iter().product::<usize>().max(1))
    }
}

struct Adaptive {
    input: [usize; 3],
    output: [usize; 3],
}

impl Boxes for Adaptive {
    fn sizes(&self) -> [[usize; 3]; 2] {
        [self.input, self.output]
    }

    fn covered(&self, position: [usize; 3]) -> ([Range<usize>; 3], usize) {
        let ranges = [0, 1, 2].map(|axis| {
            let (input, output, o) = (self.input[axis], self.output[axis], position[axis]);
            o * input / output..((o + 1) * input).div_ceil(output)
        });
        let size = ranges.iter().map(Range::len).product();
        (ranges, size)
    }
}

/// Calls `$run` for the kind of windows that the operation has.
macro_rules! for_windows {
    ($op:expr, $operands:expr, $run:ident) => {{
        let volumes = $operands.batch().saturating_mul($op.channels);
        let sizes = [$op.input, $op.output].map(|size| of_volume(size, 1));
        match &$op.windows {
            Windows::Sliding { window, count_include_pad } => {
                let window = Window::new(sizes, &window.of_volume())?;
                $run(Pool { window, padded: *count_include_pad }, volumes, $operands)
            }
            Windows::Adaptive => {
                let [input, output] = sizes.map(|size| size.map(|side| count(&[side])));
                $run(Adaptive { input, output }, volumes, $operands)
            }
        }
    }};
}

/// Computes `y` from `x`.
pub(in crate::kernels) fn forward<const N: usize>(op: &AveragePool<N>, operands: &mut Operands<'_>) -> Bound {
    for_windows!(op, operands, forward_boxes)
}

/// Computes `dx` from `dy`.
pub(in crate::kernels) fn backward<const N: usize>(op: &AveragePool<N>, operands: &mut Operands<'_>) -> Bound {
    for_windows!(op, operands, backward_boxes)
}
