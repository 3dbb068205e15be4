//! Mean over as many windows as the output has elements: row `i` of H' averages rows `floor(i * H / H')` up to, not
//! including, `ceil((i + 1) * H / H')`; columns likewise.
//!
//! Backward: every element of the window gets `dy[o] / size[o]`.

use super::Bound;
use super::avg_pool2d::{Rectangles, backward_rectangles, forward_rectangles};
use crate::operands::{Operands, count};
use gpumem_core::layers::AdaptiveAvgPool2d;
use std::ops::Range;

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

fn resolve(layer: &AdaptiveAvgPool2d) -> Adaptive {
    let [input, output] = [layer.input, layer.output].map(|size| size.map(|side| count(&[side])));
    Adaptive { input, output }
}

/// `y` from `x`.
pub(super) fn forward(layer: &AdaptiveAvgPool2d, operands: &mut Operands<'_>) -> Bound {
    forward_rectangles(resolve(layer), operands.batch().saturating_mul(layer.channels), operands)
}

/// `dx` from `dy`.
pub(super) fn backward(layer: &AdaptiveAvgPool2d, operands: &mut Operands<'_>) -> Bound {
    backward_rectangles(resolve(layer), operands.batch().saturating_mul(layer.channels), operands)
}
