//! The three products from which convolutions and transposed convolutions are made, over a map of images and a map of positions.
//!
//! ```text
//! gather   positions[b, p, o] = bias[p] + sum over c, k of weight[p, c, k] * images[b, c, at(o, k)]
//! scatter  images[b, c, i]    = bias[c] + sum over p and all (o, k) with at(o, k) = i of weight[p, c, k] * positions[b, p, o]
//! weigh    weight[p, c, k]    = sum over b, o of positions[b, p, o] * images[b, c, at(o, k)]
//! ```
//!
//! A convolution gathers forward and scatters its gradient. A transposed convolution scatters forward and gathers its gradient. In both, the weight
//! is [position channels, image channels / groups, kernel]. [`Direct`] sums read the image itself. Other images are unfolded in blocks into a matrix
//! of C * kernel rows, with a column for each position.

use crate::kernels::conv::depthwise::Depthwise;
use crate::kernels::conv::direct::Direct;
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
/// The fewest position channels of a task that computes the gradient of a weight: those of a panel of the micro kernels with AVX-512.
const CHANNELS: usize = 64;
/// The fewest positions of a part of the batch whose gradient of the weight is computed by itself.
const SUMMED: usize = 512;
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
    /// The number of samples and groups.
    tasks: usize,
    /// An implementation for several samples at once. `None` if one sample at a time is better.
    joined: Option<Joined>,
    /// The products of a depthwise convolution on small maps. `None` for others.
    depthwise: Option<Depthwise>,
    /// The sums that gather and weigh without an unfolded image. `None` if unfolding is better.
    gathers: Option<Direct>,
    /// The sums that scatter without an unfolded image. `None` if unfolding is better.
    scatters: Option<Direct>,
}

impl Correlation {
    /// Returns the products for a batch of `samples`. `channels` are those of a group's images and positions.
    pub(in crate::kernels) fn new(window: Window, groups: usize, channels: [usize; 2], samples: usize) -> Correlation {
        let joined = if groups == 1 { Joined::new(&window, channels, samples) } else { None };
        let ([images, positions], tasks) = (channels, samples.saturating_mul(groups));
        let is_single = images == 1 && positions == 1;
        let depthwise = if is_single && !window.is_pointwise() { Depthwise::new(&window, groups) } else { None };
        let is_direct = joined.is_none()
            && depthwise.is_none()
            && !window.is_pointwise()
            && (is_single || window.positions_area() > FEW);
        let gathers = if is_direct { Direct::gather(&window, images, tasks) } else { None };
        let scatters = if is_direct { Direct::scatter(&window, positions, tasks) } else { None };
        Correlation { window, groups, images, positions, tasks, joined, depthwise, gathers, scatters }
    }

    /// Returns this correlation with another number of position channels in each group.
    pub(in crate::kernels) fn with_positions(&self, positions: usize) -> Correlation {
        let joined = self.joined.as_ref().map(|joined| joined.with_positions(positions));
        let scatters = self.scatters.as_ref().and_then(|_| Direct::scatter(&self.window, positions, self.tasks));
        let depthwise = self.depthwise.clone().filter(|_| positions == self.positions);
        Correlation { positions, joined, depthwise, scatters, ..self.clone() }
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
        if let Some(depthwise) = &self.depthwise {
            return depthwise.gather(images, weight, bias, out, add, scratch);
        }
        let (area, image_area, depth) = (self.window.positions_area(), self.window.image_area(), self.depth());
        let tasks = out.len() / (self.positions * area);
        out.par_chunks_mut(self.positions * area).enumerate().for_each(|(task, out)| {
            let group = task % self.groups;
            let image = &images[task * self.images * image_area..][..self.images * image_area];
            let weight = &weight[group * self.positions * depth..][..self.positions * depth];
            let bias = bias.map(|bias| &bias[group * self.positions..][..self.positions]);
            if let Some(direct) = &self.gathers {
                return direct.sum(image, weight, bias, MatrixMut::new(out, self.positions, area, area), add);
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
        if let Some(depthwise) = &self.depthwise {
            return depthwise.scatter(positions, weight, bias, out, add, scratch);
        }
        if let Some(direct) = &self.scatters {
            return self.scatter_direct(direct, (positions, weight, bias), out, add, scratch);
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

    /// Scatters as the sums of a convolution of the positions, with the weight's channels exchanged and its elements in reverse order.
    fn scatter_direct(
        &self,
        direct: &Direct,
        (positions, weight, bias): (&[f32], &[f32], Option<&[f32]>),
        out: &mut [f32],
        add: bool,
        scratch: &mut Vec<f32>,
    ) {
        let (area, image_area, taps) =
            (self.window.positions_area(), self.window.image_area(), self.window.kernel_area());
        let (group_weight, row) = (self.positions * self.depth(), self.positions * taps);
        let turned = grown(scratch, weight.len());
        turned.par_chunks_exact_mut(row).enumerate().for_each(|(number, row)| {
            let (group, image) = (number / self.images, number % self.images);
            let from = &weight[group * group_weight..][..group_weight];
            for (to, from) in row.chunks_exact_mut(taps).zip(from.chunks_exact(self.depth())) {
                to.iter_mut().rev().zip(&from[image * taps..]).for_each(|(to, from)| *to = *from);
            }
        });
        let turned = &*turned;
        out.par_chunks_mut(self.images * image_area).enumerate().for_each(|(task, out)| {
            let group = task % self.groups;
            let positions = &positions[task * self.positions * area..][..self.positions * area];
            let bias = bias.map(|bias| &bias[group * self.images..][..self.images]);
            let weight = &turned[group * group_weight..][..group_weight];
            direct.sum(positions, weight, bias, MatrixMut::new(out, self.images, image_area, image_area), add);
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
        if let Some(depthwise) = &self.depthwise {
            return depthwise.weigh(images, positions, out, add);
        }
        let samples = positions.len() / (self.groups * self.positions * self.window.positions_area());
        let parts = (PARTIALS / out.len()).clamp(1, TASKS).min(samples);
        // Direct sums go through several samples before they are stored, so that more parts than are necessary for the tasks take longer.
        let parts = match self.gathers {
            Some(_) => {
                let tasks = self.groups * self.positions.div_ceil(CHANNELS);
                parts.min(TASKS.div_ceil(tasks)).min(samples * self.window.positions_area() / SUMMED).max(1)
            }
            None => parts,
        };
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
        let channels = self.positions.div_ceil(TASKS.div_ceil(parts * self.groups)).max(CHANNELS).min(self.positions);
        let block = self.block(depth, TASKS);
        let scratch = if self.window.is_pointwise() { 0 } else { depth * block * across };
        out.par_chunks_mut(self.positions * depth).enumerate().for_each(|(group, out)| {
            out.par_chunks_mut(channels * depth).enumerate().for_each(|(part, out)| {
                let rows = part * channels..part * channels + out.len() / depth;
                if let Some(direct) = &self.gathers {
                    let of = |sample: usize| {
                        let map = sample * self.groups + group;
                        let image = &images[map * self.images * image_area..][..self.images * image_area];
                        [image, &positions[(map * self.positions + rows.start) * area..][..rows.len() * area]]
                    };
                    return direct.weigh(samples.clone(), of, out, add);
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::TERMS;
    use gpumem_core::program::ops;

    /// Groups, channels of a group's images and positions, image, kernel, stride, padding, dilation.
    type Case = ([usize; 3], [u64; 2], [u64; 2], [u64; 2], [u64; 2], [u64; 2]);

    const CASES: [Case; 18] = [
        ([1, 3, 13], [40, 37], [3, 3], [1, 1], [1, 1], [1, 1]),
        ([1, 5, 7], [19, 23], [3, 3], [1, 1], [0, 0], [1, 1]),
        ([1, 2, 9], [33, 18], [5, 5], [1, 1], [2, 2], [1, 1]),
        ([2, 3, 4], [17, 31], [3, 3], [1, 1], [1, 1], [1, 1]),
        ([6, 1, 1], [30, 29], [7, 7], [1, 1], [3, 3], [1, 1]),
        ([5, 1, 2], [21, 21], [3, 3], [1, 1], [1, 1], [1, 1]),
        ([3, 1, 1], [21, 20], [3, 3], [2, 2], [1, 1], [1, 1]),
        ([1, 3, 8], [38, 39], [7, 7], [2, 2], [3, 3], [1, 1]),
        ([1, 4, 6], [26, 31], [3, 2], [3, 2], [1, 0], [1, 1]),
        ([1, 2, 5], [24, 27], [3, 3], [1, 1], [2, 4], [2, 3]),
        ([1, 2, 3], [40, 63], [3, 3], [4, 6], [2, 4], [2, 4]),
        ([1, 3, 4], [9, 12], [3, 1], [1, 1], [4, 3], [1, 1]),
        ([1, 4, 4], [22, 24], [1, 1], [2, 2], [0, 0], [1, 1]),
        ([1, 70, 3], [12, 12], [3, 3], [1, 1], [1, 1], [1, 1]),
        ([1, 50, 61], [25, 3], [3, 3], [1, 1], [1, 1], [1, 1]),
        ([1, 3, 49], [23, 37], [3, 3], [2, 2], [1, 1], [1, 1]),
        ([1, 7, 70], [40, 37], [3, 3], [2, 3], [1, 1], [2, 1]),
        ([2, 4, 65], [20, 23], [2, 5], [1, 1], [1, 2], [1, 1]),
    ];
    const SAMPLES: usize = 3;

    fn numbers(count: usize, factor: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * factor) % 2039) as f32 / 2039.0 - 0.4).collect()
    }

    /// Returns the sums of a case, and those over unfolded images.
    fn both(&(of_group, image, kernel_size, stride, padding, dilation): &Case) -> [Correlation; 2] {
        let axis = |axis: usize| {
            (image[axis] + 2 * padding[axis] - dilation[axis] * (kernel_size[axis] - 1) - 1) / stride[axis] + 1
        };
        let window = ops::Window { kernel_size, stride, padding, dilation };
        let window = Window::new([image, [axis(0), axis(1)]], &window).unwrap();
        let [groups, images, positions] = of_group;
        let direct = Correlation::new(window, groups, [images, positions], SAMPLES);
        assert!(direct.gathers.is_some() && direct.scatters.is_some() == (stride == [1, 1]), "{image:?}");
        let unfolded = Correlation { gathers: None, scatters: None, joined: None, ..direct.clone() };
        [direct, unfolded]
    }

    fn close(case: &Case, what: &str, found: &[f32], expected: &[f32]) {
        let scale = expected.iter().fold(0f32, |scale, x| scale.max(x.abs()));
        for (i, (a, b)) in found.iter().zip(expected).enumerate() {
            assert!((a - b).abs() <= 2e-6 * scale, "{case:?}, {what}, element {i}: {a} instead of {b}");
        }
    }

    /// Direct sums read nothing that an earlier operation left in scratch memory, at the ends of rows and planes neither.
    #[test]
    fn direct_sums_agree_with_sums_over_unfolded_images() {
        for case in &CASES {
            let [direct, unfolded] = both(case);
            let [image, position] = [direct.window.image_area(), direct.window.positions_area()];
            let (images, positions) = (direct.groups * direct.images, direct.groups * direct.positions);
            let [image, position] = [image * images * SAMPLES, position * positions * SAMPLES];
            let weight = numbers(positions * direct.depth(), 11);
            let of_positions = numbers(position, 7);
            let (bias, scratch) = (numbers(images.max(positions), 301), &mut Vec::new());
            let spoil = || with_scratch(1 << 20, |scratch| scratch.fill(f32::NAN));
            for add in [false, true] {
                let [mut found, mut expected] = [(); 2].map(|()| numbers(position, 2));
                let map = numbers(image, 5);
                spoil();
                direct.gather(&map, &weight, Some(&bias[..positions]), &mut found, add, scratch);
                unfolded.gather(&map, &weight, Some(&bias[..positions]), &mut expected, add, scratch);
                close(case, "gather", &found, &expected);
                let [mut found, mut expected] = [(); 2].map(|()| numbers(image, 2));
                spoil();
                direct.scatter(&of_positions, &weight, Some(&bias[..images]), &mut found, add, scratch);
                unfolded.scatter(&of_positions, &weight, Some(&bias[..images]), &mut expected, add, scratch);
                close(case, "scatter", &found, &expected);
                let [mut found, mut expected] = [(); 2].map(|()| numbers(weight.len(), 2));
                spoil();
                direct.weigh(&map, &of_positions, &mut found, add, scratch);
                unfolded.weigh(&map, &of_positions, &mut expected, add, scratch);
                close(case, "weigh", &found, &expected);
            }
        }
    }

    /// Sums of 2,880 terms against sums in double precision: the error is within the bound of sums in blocks of 384 terms.
    #[test]
    fn direct_sums_round_as_blocks_do() {
        let case = ([1, 320, 5], [11, 11], [3, 3], [1, 1], [0, 0], [1, 1]);
        let [direct, _] = both(&case);
        let (image, weight) = (numbers(320 * 121, 607), numbers(5 * direct.depth(), 1013));
        let mut found = vec![0.0; 5 * 81];
        let one = Correlation { tasks: 1, ..direct.clone() };
        one.gather(&image, &weight, None, &mut found, false, &mut Vec::new());
        for (at, found) in found.iter().enumerate() {
            let (p, y, x) = (at / 81, at / 9 % 9, at % 9);
            let term = |k: usize| {
                let (c, ky, kx) = (k / 9, k / 3 % 3, k % 3);
                f64::from(weight[p * direct.depth() + k]) * f64::from(image[c * 121 + (y + ky) * 11 + x + kx])
            };
            let (sum, size) = (0..direct.depth()).map(term).fold((0.0, 0.0), |(s, a), t| (s + t, a + t.abs()));
            let error = (f64::from(*found) - sum).abs();
            assert!(error <= (TERMS + 6) as f64 * f64::from(f32::EPSILON) / 2.0 * size, "{found} instead of {sum}");
        }
    }
}
