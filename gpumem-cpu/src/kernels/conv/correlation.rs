//! The three products from which convolutions and transposed convolutions are made, over a map of images and a map of positions.
//!
//! ```text
//! gather   positions[b, p, o] = bias[p] + sum over c, k of weight[p, c, k] * images[b, c, at(o, k)]
//! scatter  images[b, c, i]    = bias[c] + sum over p and all (o, k) with at(o, k) = i of weight[p, c, k] * positions[b, p, o]
//! weigh    weight[p, c, k]    = sum over b, o of positions[b, p, o] * images[b, c, at(o, k)]
//! ```
//!
//! A convolution gathers forward and scatters its gradient. A transposed convolution scatters forward and gathers its gradient. In both, the weight
//! is [position channels, image channels / groups, kernel]. Images are unfolded in blocks into a matrix of C * kernel rows, with a column for each
//! position.

use crate::kernels::conv::small_map_conv::Joined;
use crate::kernels::movement::window::Window;
use crate::matrix::{Matrix, MatrixMut, product, transpose};
use crate::parallel::{self, PIECE, grown, with_scratch};
use crate::simd::wide;
use rayon::prelude::*;
use std::ops::Range;

/// Floats of an unfolded block.
const UNFOLDED: usize = 1 << 20;
/// The fewest tasks into which an operation is split, if its shape allows.
const TASKS: usize = 16;
/// The most positions for which elements of the output are computed as dot products.
const FEW: usize = 8;
/// The most elements for which `gemm` computes dot products.
const DOTS: usize = 256;
/// Floats of partial weight gradients.
const PARTIALS: usize = 1 << 22;

/// A window with the channels on both of its sides, for each of `groups` groups.
#[derive(Clone, Debug)]
pub(in crate::kernels) struct Correlation {
    window: Window,
    groups: usize,
    /// Image channels of a group.
    images: usize,
    /// Position channels of a group.
    positions: usize,
    /// An implementation for several samples at once. `None` if one sample at a time is better.
    joined: Option<Joined>,
}

impl Correlation {
    /// Returns the products for a batch of `samples`. `channels` are those of a group's images and positions.
    pub(in crate::kernels) fn new(window: Window, groups: usize, channels: [usize; 2], samples: usize) -> Correlation {
        let joined = if groups == 1 { Joined::new(&window, channels, samples) } else { None };
        let [images, positions] = channels;
        Correlation { window, groups, images, positions, joined }
    }

    /// Returns this correlation with another number of position channels in each group.
    pub(in crate::kernels) fn with_positions(&self, positions: usize) -> Correlation {
        let joined = self.joined.as_ref().map(|joined| joined.with_positions(positions));
        Correlation { positions, joined, ..self.clone() }
    }

    /// Returns the rows of the unfolded image of a group.
    fn depth(&self) -> usize {
        self.images * self.window.kernel_area()
    }

    fn is_depthwise(&self) -> bool {
        self.images == 1 && self.positions == 1 && !self.window.is_pointwise()
    }

    /// Returns how many rows of positions are unfolded at once, if there are `tasks` tasks already and `depth` rows are unfolded.
    fn block(&self, depth: usize, tasks: usize) -> usize {
        let [height, width] = self.window.positions;
        let fitting = (UNFOLDED / (depth * width)).max(1);
        fitting.min(height.div_ceil(TASKS.div_ceil(tasks))).max(64usize.div_ceil(width)).min(height)
    }

    /// Unfolds the channels `channels` of an image at position rows `rows`.
    fn unfold(&self, image: &[f32], channels: Range<usize>, rows: Range<usize>, out: &mut [f32]) {
        let Window { image: [_, width], positions: [_, across], kernel: [tall, wide], stride, .. } = self.window;
        let area = self.window.image_area();
        let mut lines = out.chunks_exact_mut(across);
        for channel in channels {
            let plane = &image[channel * area..][..area];
            for ky in 0..tall {
                for kx in 0..wide {
                    let (inside, first) = self.window.inside(1, kx);
                    for row in rows.clone() {
                        let Some(line) = lines.next() else { return };
                        let Some(y) = self.window.coordinate(0, row, ky) else {
                            line.fill(0.0);
                            continue;
                        };
                        line[..inside.start].fill(0.0);
                        line[inside.end..].fill(0.0);
                        let line = &mut line[inside.clone()];
                        let pixels = &plane[y * width..][..width];
                        match stride[1] {
                            1 => line.copy_from_slice(&pixels[first..first + line.len()]),
                            step => line.iter_mut().enumerate().for_each(|(i, x)| *x = pixels[first + i * step]),
                        }
                    }
                }
            }
        }
    }

    /// Adds an unfolded block to the image that it came from; the reverse of [`unfold`](Correlation::unfold).
    fn fold(&self, unfolded: &[f32], rows: Range<usize>, image: &mut [f32]) {
        let Window { image: [_, width], positions: [_, across], kernel: [tall, wide], stride, .. } = self.window;
        let mut lines = unfolded.chunks_exact(across);
        for plane in image.chunks_exact_mut(self.window.image_area()) {
            for ky in 0..tall {
                for kx in 0..wide {
                    let (inside, first) = self.window.inside(1, kx);
                    for row in rows.clone() {
                        let Some(line) = lines.next() else { return };
                        let Some(y) = self.window.coordinate(0, row, ky) else { continue };
                        let line = &line[inside.clone()];
                        let pixels = &mut plane[y * width..][..width];
                        match stride[1] {
                            1 => pixels[first..first + line.len()].iter_mut().zip(line).for_each(|(p, &x)| *p += x),
                            step => line.iter().enumerate().for_each(|(i, &x)| pixels[first + i * step] += x),
                        }
                    }
                }
            }
        }
    }

    /// Calls `f` for each row of positions at which element `k` of the kernel meets the image.
    ///
    /// `f` gets the range of these positions in their plane, and the pixel that the first of them reads.
    fn tap(&self, k: usize, mut f: impl FnMut(Range<usize>, usize)) {
        let Window { image: [_, width], positions: [_, across], kernel: [_, wide], stride, .. } = self.window;
        let (rows, first_row) = self.window.inside(0, k / wide);
        let (columns, first_column) = self.window.inside(1, k % wide);
        if columns.is_empty() {
            return;
        }
        for (i, row) in rows.enumerate() {
            let start = row * across;
            f(start + columns.start..start + columns.end, (first_row + i * stride[0]) * width + first_column);
        }
    }

    /// Gathers: see the [module](self).
    pub(in crate::kernels) fn gather(
        &self,
        images: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        out: &mut [f32],
        add: bool,
        scratch: &mut Vec<f32>,
    ) {
        if let Some(joined) = &self.joined {
            return joined.gather(images, weight, bias, out, add, scratch);
        }
        let (area, image_area, depth) = (self.window.positions_area(), self.window.image_area(), self.depth());
        let tasks = out.len() / (self.positions * area);
        out.par_chunks_mut(self.positions * area).enumerate().for_each(|(task, out)| {
            let group = task % self.groups;
            let image = &images[task * self.images * image_area..][..self.images * image_area];
            let weight = &weight[group * self.positions * depth..][..self.positions * depth];
            let bias = bias.map(|bias| &bias[group * self.positions..][..self.positions]);
            if self.is_depthwise() {
                return self.gather_plane(image, weight, bias, out, add);
            }
            let weight = Matrix::new(weight, self.positions, depth, depth);
            let rows = self.block(depth, tasks);
            let matrix = MatrixMut::new(out, self.positions, area, area);
            self.gather_rows(image, weight, bias, matrix, 0, rows, add);
        });
    }

    /// Gathers the position rows from `first` on, `block` of them at once.
    #[allow(clippy::too_many_arguments)]
    fn gather_rows(
        &self,
        image: &[f32],
        weight: Matrix<'_>,
        bias: Option<&[f32]>,
        mut out: MatrixMut<'_>,
        first: usize,
        block: usize,
        add: bool,
    ) {
        let across = self.window.positions[1];
        let (pixels, rows) = (out.width(), out.width() / across);
        if rows > block {
            let at = rows.div_ceil(block) / 2 * block;
            let (upper, lower) = out.split_columns(at * across);
            let run = |out, first| self.gather_rows(image, weight, bias, out, first, block, add);
            rayon::join(|| run(upper, first), || run(lower, first + at));
            return;
        }
        let whole = 0..out.height();
        if self.window.is_pointwise() {
            let unfolded = Matrix::new(image, self.images, self.window.image_area(), self.window.image_area());
            let columns = first * across..first * across + pixels;
            product(out.rows(whole), weight, unfolded.columns(columns), 1.0, add);
        } else if pixels <= FEW {
            self.gather_few(image, weight, &mut out, first..first + rows, add);
        } else {
            with_scratch(self.depth() * pixels, |unfolded| {
                self.unfold(image, 0..self.images, first..first + rows, unfolded);
                product(out.rows(whole), weight, Matrix::new(unfolded, self.depth(), pixels, pixels), 1.0, add);
            });
        }
        if let Some(bias) = bias {
            bias.iter().enumerate().for_each(|(p, bias)| out.row(p).iter_mut().for_each(|y| *y += bias));
        }
    }

    /// Gathers a few position rows, with a dot product for each element. The axis that is summed over is the innermost one of both factors.
    fn gather_few(&self, image: &[f32], weight: Matrix<'_>, out: &mut MatrixMut<'_>, rows: Range<usize>, add: bool) {
        let (depth, pixels, height) = (self.depth(), out.width(), out.height());
        with_scratch(2 * depth * pixels, |scratch| {
            let (unfolded, turned) = scratch.split_at_mut(depth * pixels);
            self.unfold(image, 0..self.images, rows, unfolded);
            transpose(MatrixMut::new(turned, pixels, depth, depth), Matrix::new(unfolded, depth, pixels, pixels));
            let turned = Matrix::new(turned, pixels, depth, depth).t();
            let each = DOTS / pixels.max(1);
            for p in (0..height).step_by(each) {
                let part = p..height.min(p + each);
                product(out.rows(part.clone()), weight.rows(part), turned, 1.0, add);
            }
        });
    }

    fn gather_plane(&self, image: &[f32], weight: &[f32], bias: Option<&[f32]>, out: &mut [f32], add: bool) {
        let bias = bias.map_or(0.0, |bias| bias[0]);
        parallel::store(out, add, |_| bias);
        let step = self.window.stride[1];
        for (k, w) in weight.iter().enumerate() {
            self.tap(k, |positions, pixel| {
                let (out, image) = (&mut out[positions], &image[pixel..]);
                match step {
                    1 => out.iter_mut().zip(image).for_each(|(y, x)| *y += w * x),
                    _ => out.iter_mut().zip(image.iter().step_by(step)).for_each(|(y, x)| *y += w * x),
                }
            });
        }
    }

    /// Scatters: see the [module](self).
    pub(in crate::kernels) fn scatter(
        &self,
        positions: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        out: &mut [f32],
        add: bool,
        scratch: &mut Vec<f32>,
    ) {
        if let Some(joined) = &self.joined {
            return joined.scatter(positions, weight, bias, out, add, scratch);
        }
        let (area, image_area, depth) = (self.window.positions_area(), self.window.image_area(), self.depth());
        let tasks = out.len() / (self.images * image_area);
        // A small batch is split by channels too.
        let channels = self.images.div_ceil(TASKS.div_ceil(tasks));
        out.par_chunks_mut(self.images * image_area).enumerate().for_each(|(task, out)| {
            let group = task % self.groups;
            let positions = &positions[task * self.positions * area..][..self.positions * area];
            let weight = &weight[group * self.positions * depth..][..self.positions * depth];
            out.par_chunks_mut(channels * image_area).enumerate().for_each(|(part, out)| {
                let first = part * channels;
                let bias = bias.map(|bias| &bias[group * self.images + first..]);
                for (channel, plane) in out.chunks_mut(image_area).enumerate() {
                    parallel::store(plane, add, |_| bias.map_or(0.0, |bias| bias[channel]));
                }
                if self.is_depthwise() {
                    self.scatter_plane(positions, weight, out);
                } else {
                    let weight = Matrix::new(weight, self.positions, depth, depth);
                    self.scatter_channels(positions, weight, first, out);
                }
            });
        });
    }

    /// Adds to the image channels from `first` on.
    fn scatter_channels(&self, positions: &[f32], weight: Matrix<'_>, first: usize, out: &mut [f32]) {
        let (area, image_area, taps) =
            (self.window.positions_area(), self.window.image_area(), self.window.kernel_area());
        let channels = out.len() / image_area;
        let weight = weight.columns(first * taps..(first + channels) * taps).t();
        let positions = Matrix::new(positions, self.positions, area, area);
        if self.window.is_pointwise() {
            return product(MatrixMut::new(out, channels, area, area), weight, positions, 1.0, true);
        }
        let [height, across] = self.window.positions;
        let block = self.block(channels * taps, TASKS);
        with_scratch(channels * taps * block * across, |scratch| {
            for row in (0..height).step_by(block) {
                let rows = row..height.min(row + block);
                let pixels = rows.len() * across;
                let unfolded = &mut scratch[..channels * taps * pixels];
                let matrix = MatrixMut::new(unfolded, channels * taps, pixels, pixels);
                product(matrix, weight, positions.columns(row * across..row * across + pixels), 1.0, false);
                self.fold(unfolded, rows, out);
            }
        });
    }

    fn scatter_plane(&self, positions: &[f32], weight: &[f32], out: &mut [f32]) {
        let step = self.window.stride[1];
        for (k, w) in weight.iter().enumerate() {
            self.tap(k, |range, pixel| {
                let (positions, out) = (&positions[range], &mut out[pixel..]);
                match step {
                    1 => out.iter_mut().zip(positions).for_each(|(y, x)| *y += w * x),
                    _ => out.iter_mut().step_by(step).zip(positions).for_each(|(y, x)| *y += w * x),
                }
            });
        }
    }

    /// Computes the gradient of the weight: see the [module](self).
    ///
    /// The batch is split into parts with a sum each, as many as their memory allows. Large weights are also split by position channels. Both splits
    /// depend on the shape only.
    pub(in crate::kernels) fn weigh(
        &self,
        images: &[f32],
        positions: &[f32],
        out: &mut [f32],
        add: bool,
        scratch: &mut Vec<f32>,
    ) {
        if let Some(joined) = &self.joined {
            return joined.weigh(images, positions, out, add, scratch);
        }
        let samples = positions.len() / (self.groups * self.positions * self.window.positions_area());
        if self.is_depthwise() {
            return self.weigh_planes(images, positions, samples, out, add);
        }
        let parts = (PARTIALS / out.len()).clamp(1, TASKS).min(samples);
        let each = samples.div_ceil(parts);
        if each == samples {
            return self.weigh_samples(images, positions, 0..samples, parts, out, add);
        }
        let length = out.len();
        let parts = samples.div_ceil(each);
        let partials = grown(scratch, parts * length);
        partials.par_chunks_mut(length).enumerate().for_each(|(part, out)| {
            let first = part * each;
            self.weigh_samples(images, positions, first..samples.min(first + each), parts, out, false);
        });
        let partials = &*partials;
        parallel::pieces(None, out, PIECE, |piece, _, out| {
            let at = piece * PIECE;
            if !add {
                out.fill(0.0);
            }
            for part in partials.chunks_exact(length) {
                wide(|| out.iter_mut().zip(&part[at..]).for_each(|(sum, x)| *sum += x));
            }
            0.0
        });
    }

    /// Computes the weight gradient of some samples.
    fn weigh_samples(
        &self,
        images: &[f32],
        positions: &[f32],
        samples: Range<usize>,
        parts: usize,
        out: &mut [f32],
        add: bool,
    ) {
        let (area, image_area, depth) = (self.window.positions_area(), self.window.image_area(), self.depth());
        let [height, across] = self.window.positions;
        let channels = self.positions.div_ceil(TASKS.div_ceil(parts * self.groups)).max(32).min(self.positions);
        let block = self.block(depth, TASKS);
        let scratch = if self.window.is_pointwise() { 0 } else { depth * block * across };
        out.par_chunks_mut(self.positions * depth).enumerate().for_each(|(group, out)| {
            out.par_chunks_mut(channels * depth).enumerate().for_each(|(part, out)| {
                let rows = part * channels..part * channels + out.len() / depth;
                with_scratch(scratch, |scratch| {
                    for sample in samples.clone() {
                        let map = sample * self.groups + group;
                        let image = &images[map * self.images * image_area..][..self.images * image_area];
                        let positions = &positions[map * self.positions * area..][..self.positions * area];
                        let positions = Matrix::new(positions, self.positions, area, area).rows(rows.clone());
                        for row in (0..height).step_by(block) {
                            let lines = row..height.min(row + block);
                            let pixels = lines.len() * across;
                            let columns = row * across..row * across + pixels;
                            let unfolded = if self.window.is_pointwise() {
                                Matrix::new(image, self.images, area, area).columns(columns.clone())
                            } else {
                                self.unfold(image, 0..self.images, lines, &mut scratch[..depth * pixels]);
                                Matrix::new(scratch, depth, pixels, pixels)
                            };
                            let add = add || sample > samples.start || row > 0;
                            let out = MatrixMut::new(out, rows.len(), depth, depth);
                            product(out, positions.columns(columns), unfolded.t(), 1.0, add);
                        }
                    }
                });
            });
        });
    }

    fn weigh_planes(&self, images: &[f32], positions: &[f32], samples: usize, out: &mut [f32], add: bool) {
        let (area, image_area) = (self.window.positions_area(), self.window.image_area());
        let step = self.window.stride[1];
        out.par_chunks_mut(self.window.kernel_area()).enumerate().for_each(|(channel, out)| {
            parallel::store(out, add, |k| {
                let mut sum = 0.0;
                for sample in 0..samples {
                    let map = sample * self.groups + channel;
                    let image = &images[map * image_area..][..image_area];
                    let positions = &positions[map * area..][..area];
                    self.tap(k, |range, pixel| {
                        let (positions, image) = (&positions[range], &image[pixel..]);
                        let term = |p: f32, x: f32| f64::from(p) * f64::from(x);
                        sum += match step {
                            1 => parallel::sum_of_pairs(positions, &image[..positions.len()], term),
                            _ => positions.iter().zip(image.iter().step_by(step)).map(|(&p, &x)| term(p, x)).sum(),
                        };
                    });
                }
                sum as f32
            });
        });
    }
}

/// Sums each channel, which is the gradient of a bias: `out[c] (+)= sum over b and the plane of map[b, c]`.
pub(in crate::kernels) fn channel_sums(map: &[f32], area: usize, out: &mut [f32], add: bool) {
    let channels = out.len();
    out.par_iter_mut().enumerate().for_each(|(channel, out)| {
        let planes = map.chunks_exact(area).skip(channel).step_by(channels);
        let sum: f64 = planes.map(|plane| parallel::sum(plane, f64::from)).sum();
        *out = if add { *out } else { 0.0 } + sum as f32;
    });
}
