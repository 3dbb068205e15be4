//! The three products of convolutions on small maps. The matrix of one sample has too few columns for a fast product, so several samples are joined
//! to one matrix.
//!
//! S samples, P channels of positions, N pixels of all image channels, D = C * kernel rows of an unfolded image, and W = positions * S columns. The
//! samples are the innermost axis, so that unfolding copies runs of a whole batch:
//!
//! ```text
//! gather   positions [P, W] = weight [P, D] * unfolded [D, W], unfolded from images [N, S]
//! scatter  unfolded [D, W] = weight [P, D]^T * positions [P, W], folded into images [N, S]
//! weigh    weight [P, D] = positions [P, W] * unfolded [D, W]^T
//! ```

use crate::kernels::movement::window::Window;
use crate::matrix::{Matrix, MatrixMut, product_parallel, transpose};
use crate::parallel::{self, PIECE, grown};
use crate::simd::wide;
use rayon::prelude::*;
use std::sync::Arc;

/// The most positions of a map whose samples are joined.
const SMALL: usize = 64;
/// Floats of an unfolded block.
const UNFOLDED: usize = 1 << 20;
/// With fewer columns than this, the product with the transposed weight is faster if it is computed transposed.
const NARROW: usize = 128;

/// Adjacent positions at which element `tap` of the kernel is inside the image, and the pixel that the first of them reads.
#[derive(Clone, Copy, Debug)]
struct PixelRun {
    tap: usize,
    position: usize,
    pixel: usize,
    count: usize,
}

/// The joined samples of a convolution on small maps.
#[derive(Clone, Debug)]
pub(in crate::kernels) struct Joined {
    window: Window,
    runs: Arc<[PixelRun]>,
    /// Samples of one product.
    samples: usize,
    /// Image channels of a sample. The next field is its position channels.
    images: usize,
    positions: usize,
}

/// Scratch memory of one product.
struct ProductScratch<'s> {
    /// The images, [N, S].
    images: &'s mut [f32],
    /// The positions, [P, W].
    positions: &'s mut [f32],
    /// The unfolded images, [D, W].
    unfolded: &'s mut [f32],
    /// Scratch memory as long as `images` and `positions`, and also as long as `unfolded` if that is narrow.
    spare: &'s mut [f32],
}

impl Joined {
    /// Joins samples of a batch of `samples`. `None` if that is not worthwhile.
    pub(in crate::kernels) fn new(window: &Window, [images, positions]: [usize; 2], samples: usize) -> Option<Joined> {
        let (area, taps) = (window.positions_area(), window.kernel_area());
        if area == 0 || area > SMALL {
            return None;
        }
        let fitting = UNFOLDED / images.saturating_mul(taps).saturating_mul(area).max(1);
        // All products of a batch have about the same number of samples.
        let together = samples.div_ceil(samples.div_ceil(fitting.max(1)).max(1));
        if together < 2 {
            return None;
        }
        let [_, across] = window.positions;
        let mut runs = Vec::new();
        for tap in 0..taps {
            let (rows, first_row) = window.inside(0, tap / window.kernel[1]);
            let (columns, first_column) = window.inside(1, tap % window.kernel[1]);
            for (i, row) in rows.enumerate().filter(|_| !columns.is_empty()) {
                let pixel = (first_row + i * window.stride[0]) * window.image[1] + first_column;
                runs.push(PixelRun { tap, position: row * across + columns.start, pixel, count: columns.len() });
            }
        }
        Some(Joined { window: *window, runs: runs.into(), samples: together, images, positions })
    }

    /// Returns these joined samples with another number of position channels.
    pub(in crate::kernels) fn with_positions(&self, positions: usize) -> Joined {
        Joined { positions, ..self.clone() }
    }

    /// Returns the rows of an unfolded image.
    fn depth(&self) -> usize {
        self.images * self.window.kernel_area()
    }

    /// Returns the elements of the images and of the positions of a sample.
    fn lengths(&self) -> [usize; 2] {
        [self.images * self.window.image_area(), self.positions * self.window.positions_area()]
    }

    /// Returns scratch memory for a product of `samples` samples.
    fn room<'s>(&self, samples: usize, scratch: &'s mut Vec<f32>) -> ProductScratch<'s> {
        let lengths = self.lengths().map(|length| length * samples);
        let unfolded = self.depth() * self.window.positions_area() * samples;
        let narrow = if self.window.positions_area() * samples < NARROW { unfolded } else { 0 };
        let spare = narrow.max(lengths[0]).max(lengths[1]);
        let rest = grown(scratch, lengths[0] + lengths[1] + unfolded + spare);
        let (images, rest) = rest.split_at_mut(lengths[0]);
        let (positions, rest) = rest.split_at_mut(lengths[1]);
        let (unfolded, spare) = rest.split_at_mut(unfolded);
        ProductScratch { images, positions, unfolded, spare }
    }

    /// Unfolds `images`, [N, S], to [D, W].
    fn unfold<'r>(&self, images: &'r [f32], unfolded: &'r mut [f32], samples: usize) -> &'r [f32] {
        if self.window.is_pointwise() {
            return images;
        }
        let (width, step) = (self.window.positions_area() * samples, self.window.stride[1]);
        let planes = images.par_chunks(self.window.image_area() * samples);
        unfolded.par_chunks_mut(self.window.kernel_area() * width).zip(planes).for_each(|(rows, plane)| {
            // Runs are in order, and what lies between them is padding.
            let mut end = 0;
            for run in &*self.runs {
                let start = run.tap * width + run.position * samples;
                rows[end..start].fill(0.0);
                end = start + run.count * samples;
                let rows = &mut rows[start..end];
                let plane = &plane[run.pixel * samples..];
                if step == 1 {
                    rows.copy_from_slice(&plane[..rows.len()]);
                } else {
                    let pixels = plane.chunks(samples).step_by(step);
                    rows.chunks_exact_mut(samples).zip(pixels).for_each(|(row, pixel)| row.copy_from_slice(pixel));
                }
            }
            rows[end..].fill(0.0);
        });
        unfolded
    }

    /// Folds `unfolded`, [D, W], into `images`, [N, S], the reverse of [`unfold`](Joined::unfold).
    fn fold(&self, unfolded: &[f32], images: &mut [f32], samples: usize) {
        let (width, step) = (self.window.positions_area() * samples, self.window.stride[1]);
        let rows = unfolded.par_chunks(self.window.kernel_area() * width);
        images.par_chunks_mut(self.window.image_area() * samples).zip(rows).for_each(|(plane, rows)| {
            plane.fill(0.0);
            let add =
                |to: &mut [f32], from: &[f32]| wide(|| to.iter_mut().zip(from).for_each(|(to, from)| *to += from));
            for run in &*self.runs {
                let rows = &rows[run.tap * width + run.position * samples..][..run.count * samples];
                let plane = &mut plane[run.pixel * samples..];
                if step == 1 {
                    add(plane, rows);
                } else {
                    let pixels = plane.chunks_mut(samples).step_by(step);
                    pixels.zip(rows.chunks_exact(samples)).for_each(|(pixel, row)| add(pixel, row));
                }
            }
        });
    }

    /// Gathers: see `correlation`.
    pub(in crate::kernels) fn gather(
        &self,
        images: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        out: &mut [f32],
        add: bool,
        scratch: &mut Vec<f32>,
    ) {
        let ([image, position], depth) = (self.lengths(), self.depth());
        for (images, out) in images.chunks(self.samples * image).zip(out.chunks_mut(self.samples * position)) {
            let samples = images.len() / image;
            let width = self.window.positions_area() * samples;
            let room = self.room(samples, scratch);
            transpose(MatrixMut::new(room.images, image, samples, samples), Matrix::new(images, samples, image, image));
            let unfolded = Matrix::new(self.unfold(room.images, room.unfolded, samples), depth, width, width);
            let weight = Matrix::new(weight, self.positions, depth, depth);
            product_parallel(MatrixMut::new(room.positions, self.positions, width, width), weight, unfolded, false);
            self.put(out, room.positions, samples, room.spare, add);
            add_bias(out, bias, self.window.positions_area());
        }
    }

    /// Scatters: see `correlation`.
    pub(in crate::kernels) fn scatter(
        &self,
        positions: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        out: &mut [f32],
        add: bool,
        scratch: &mut Vec<f32>,
    ) {
        let ([image, position], depth) = (self.lengths(), self.depth());
        for (positions, out) in positions.chunks(self.samples * position).zip(out.chunks_mut(self.samples * image)) {
            let samples = positions.len() / position;
            let width = self.window.positions_area() * samples;
            let room = self.room(samples, scratch);
            let joined = MatrixMut::new(room.positions, position, samples, samples);
            transpose(joined, Matrix::new(positions, samples, position, position));
            let joined = Matrix::new(room.positions, self.positions, width, width);
            let weight = Matrix::new(weight, self.positions, depth, depth);
            let folded = if self.window.is_pointwise() { &mut *room.images } else { &mut *room.unfolded };
            if width < NARROW {
                let spare = &mut room.spare[..folded.len()];
                product_parallel(MatrixMut::new(spare, width, depth, depth), joined.t(), weight, false);
                transpose(MatrixMut::new(folded, depth, width, width), Matrix::new(spare, width, depth, depth));
            } else {
                product_parallel(MatrixMut::new(folded, depth, width, width), weight.t(), joined, false);
            }
            if !self.window.is_pointwise() {
                self.fold(room.unfolded, room.images, samples);
            }
            self.put(out, room.images, samples, room.spare, add);
            add_bias(out, bias, self.window.image_area());
        }
    }

    /// Computes the gradient of the weight: see `correlation`.
    pub(in crate::kernels) fn weigh(
        &self,
        images: &[f32],
        positions: &[f32],
        out: &mut [f32],
        add: bool,
        scratch: &mut Vec<f32>,
    ) {
        let ([image, position], depth) = (self.lengths(), self.depth());
        let blocks = images.chunks(self.samples * image).zip(positions.chunks(self.samples * position));
        for (block, (images, positions)) in blocks.enumerate() {
            let samples = images.len() / image;
            let width = self.window.positions_area() * samples;
            let room = self.room(samples, scratch);
            transpose(MatrixMut::new(room.images, image, samples, samples), Matrix::new(images, samples, image, image));
            let joined = MatrixMut::new(room.positions, position, samples, samples);
            transpose(joined, Matrix::new(positions, samples, position, position));
            let joined = Matrix::new(room.positions, self.positions, width, width);
            let unfolded = Matrix::new(self.unfold(room.images, room.unfolded, samples), depth, width, width);
            let out = MatrixMut::new(out, self.positions, depth, depth);
            product_parallel(out, joined, unfolded.t(), add || block > 0);
        }
    }

    /// Transposes: `out[s, i] (+)= joined[i, s]`.
    fn put(&self, out: &mut [f32], joined: &[f32], samples: usize, spare: &mut [f32], add: bool) {
        let each = out.len() / samples;
        let joined = Matrix::new(joined, each, samples, samples);
        if !add {
            return transpose(MatrixMut::new(out, samples, each, each), joined);
        }
        let spare = &mut spare[..out.len()];
        transpose(MatrixMut::new(spare, samples, each, each), joined);
        parallel::pieces(Some(spare), out, PIECE, |_, x, y| {
            wide(|| y.iter_mut().zip(x.unwrap_or_default()).for_each(|(y, x)| *y += x));
            0.0
        });
    }
}

/// Adds a bias to planes of `area` elements: `map[b, c, i] += bias[c]`.
fn add_bias(map: &mut [f32], bias: Option<&[f32]>, area: usize) {
    if let Some(bias) = bias {
        map.par_chunks_mut(area).enumerate().for_each(|(plane, y)| {
            let bias = bias[plane % bias.len()];
            wide(|| y.iter_mut().for_each(|y| *y += bias));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::conv::correlation::Correlation;
    use gpumem_core::program::ops;

    const SAMPLES: usize = 5;
    const CHANNELS: [usize; 2] = [3, 4];

    fn numbers(count: usize, factor: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * factor) % 17) as f32 / 17.0 - 0.4).collect()
    }

    fn close(found: &[f32], expected: &[f32]) {
        for (i, (a, b)) in found.iter().zip(expected).enumerate() {
            assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "element {i}: {a} instead of {b}");
        }
    }

    /// Products of two samples, the last of one, against products of one sample each.
    #[test]
    fn blocks_of_samples_agree_with_single_ones() {
        for (image, position, kernel_size, stride, padding) in [
            ([5, 4], [3, 2], [3, 3], [2, 2], [1, 1]),
            ([8, 8], [8, 8], [3, 1], [1, 1], [1, 0]),
            ([2, 2], [2, 2], [1, 1], [1, 1], [0, 0]),
        ] {
            let window = ops::Window { kernel_size, stride, padding, dilation: [1, 1] };
            let window = Window::new([image, position], &window).unwrap();
            let mut joined = Joined::new(&window, CHANNELS, 2).unwrap_or_else(|| panic!("{image:?}"));
            joined.samples = 2;
            let single = Correlation::new(window, 1, CHANNELS, 1);
            let [image, position] = joined.lengths().map(|length| length * SAMPLES);
            let (images, positions) = (numbers(image, 5), numbers(position, 7));
            let weight = numbers(CHANNELS[1] * joined.depth(), 11);
            let (bias, scratch) = (numbers(4, 3), &mut Vec::new());
            for add in [false, true] {
                let [mut found, mut expected] = [(); 2].map(|()| numbers(position, 2));
                joined.gather(&images, &weight, Some(&bias), &mut found, add, scratch);
                single.gather(&images, &weight, Some(&bias), &mut expected, add, scratch);
                close(&found, &expected);
                let [mut found, mut expected] = [(); 2].map(|()| numbers(image, 2));
                joined.scatter(&positions, &weight, Some(&bias[..3]), &mut found, add, scratch);
                single.scatter(&positions, &weight, Some(&bias[..3]), &mut expected, add, scratch);
                close(&found, &expected);
                let [mut found, mut expected] = [(); 2].map(|()| numbers(weight.len(), 2));
                joined.weigh(&images, &positions, &mut found, add, scratch);
                single.weigh(&images, &positions, &mut expected, add, scratch);
                close(&found, &expected);
            }
        }
    }
}
