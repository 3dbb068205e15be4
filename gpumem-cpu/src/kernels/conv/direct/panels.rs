//! The gradient of the weight by the micro kernels of matrix products.
//!
//! The positions of some channels are packed in a panel, whose terms are positions in rows as long as those of a frame, with zeros between them. For
//! each element of the kernel, the product of the panel with the frame's channels, which begin at that element's offset, has the gradients of these
//! channels. So vectors are of channels, not of positions, and no vector's numbers are added up.

use super::Direct;
use crate::matrix::Matrix;
use crate::matrix::pack::pack;
use crate::matrix::panels::{add_panel, height, lanes};
use crate::parallel::with_scratch;
use std::ops::Range;

/// Positions whose part of a panel fits a first cache.
const POSITIONS: usize = 128;

/// The fewest channels of an image: the sums of fewer do not hide the latency of an addition.
const FEWEST: usize = 3;

/// True if the kernels have enough sums at a time.
pub(super) fn suits(of: &Direct, channels: usize) -> bool {
    images(of) >= FEWEST && channels >= 2 * lanes()
}

/// Returns the channels of the image.
fn images(of: &Direct) -> usize {
    of.depth() / area(of)
}

/// Returns the elements of the kernel.
fn area(of: &Direct) -> usize {
    of.axes[0].kernel * of.axes[1].kernel
}

/// Adds to the gradient of the weight what some samples contribute: see [`Direct::weigh`].
pub(super) fn weigh<'d>(
    of: &Direct,
    samples: Range<usize>,
    at: impl Fn(usize) -> [&'d [f32]; 2],
    out: &mut [f32],
    add: bool,
) {
    let (height, depth, each) = (height(), of.depth(), of.frame_length());
    let length = of.rows * of.pitch;
    let area_of_map = of.axes[0].positions * of.axes[1].positions;
    with_scratch(each + (length + depth) * height, |scratch| {
        let (frame, rest) = scratch.split_at_mut(each);
        let (panel, sums) = rest.split_at_mut(length * height);
        for (part, out) in out.chunks_mut(height * depth).enumerate() {
            let channels = out.len() / depth;
            sums.fill(0.0);
            for sample in samples.clone() {
                let [image, positions] = at(sample);
                let positions =
                    Matrix::new(&positions[part * height * area_of_map..], channels, area_of_map, area_of_map);
                for first in (0..of.axes[0].positions).step_by(of.rows) {
                    of.fill(image, first, frame);
                    fill_panel(of, positions, first, panel);
                    add_block(of, frame, panel, channels, sums);
                }
            }
            for (channel, row) in out.chunks_exact_mut(depth).enumerate() {
                let sums = sums[channel..].iter().step_by(height);
                match add {
                    true => row.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum),
                    false => row.iter_mut().zip(sums).for_each(|(out, sum)| *out = *sum),
                }
            }
        }
    });
}

/// Packs the position rows of a block from `first` on, of all channels.
fn fill_panel(of: &Direct, positions: Matrix<'_>, first: usize, panel: &mut [f32]) {
    let (height, across) = (height(), of.axes[1].positions);
    for (row, line) in panel.chunks_exact_mut(of.pitch * height).enumerate() {
        let row = first + row;
        let (inside, outside) = line.split_at_mut(across * height);
        outside.fill(0.0);
        if row < of.axes[0].positions {
            pack(positions.columns(row * across..(row + 1) * across), height, across * height, inside);
        } else {
            inside.fill(0.0);
        }
    }
}

/// Adds what a block contributes to the sums [depth, height].
fn add_block(of: &Direct, frame: &[f32], panel: &[f32], channels: usize, sums: &mut [f32]) {
    let (height, area, images) = (height(), area(of), images(of));
    // Frames have the planes of one channel after those of another.
    let plane = of.planes / images * of.height * of.pitch;
    let length = panel.len() / height;
    let block = length.div_ceil(length.div_ceil(POSITIONS));
    for first in (0..length).step_by(block) {
        let terms = first..length.min(first + block);
        let panel = &panel[terms.start * height..terms.end * height];
        for (element, &offset) in of.offsets[..area].iter().enumerate() {
            let windows = Matrix::new(&frame[offset as usize + first..], images, terms.len(), plane);
            add_panel(&mut sums[element * height..], area * height, windows, panel, channels);
        }
    }
}
