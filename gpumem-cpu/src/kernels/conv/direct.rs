//! Convolutions whose sums read the image itself, without an unfolded copy.
//!
//! A frame is a copy of some image rows with their padding. It has one plane for each channel and each remainder of a coordinate by the stride, so
//! that an element of the kernel meets the positions of a row at adjacent floats:
//!
//! ```text
//! position (y, x) meets element (ky, kx) of channel c at   offset[c, ky, kx] + y * pitch + x   of the frame
//! ```
//!
//! So a run of positions is one vector load at any offset, also across the end of a row: the frame's rows are longer than the rows of positions, and
//! sums between two rows are not stored. A frame is `kernel area / stride area` times smaller than the unfolded image, and is read from the cache.
//! Sums of more than 512 terms are split, as in matrix products.

use crate::kernels::movement::window::Window;
use crate::matrix::MatrixMut;
use crate::parallel::with_scratch;
use crate::simd::dispatch;
use pulp::{Simd, WithSimd};
use std::ops::Range;
use std::sync::Arc;

/// Floats of a frame, half of a common second cache.
const FRAME: usize = 1 << 17;
/// Positions of a row block, below which another block does not pay off.
const POSITIONS: usize = 192;
/// The fewest tasks into which an operation is split, if its shape allows.
const TASKS: usize = 16;
/// Terms that are summed before the sum is added to the others.
pub(in crate::kernels) const TERMS: usize = 512;
/// The most terms, whose table of offsets takes 4 MiB.
const DEPTH: usize = 1 << 20;
/// The most numbers of a vector. So many floats are read after the last plane of a frame.
const LANES: usize = 16;
/// The most vectors of a tile.
const VECTORS: usize = 4;

/// One axis of a frame.
#[derive(Clone, Copy, Debug)]
struct Axis {
    image: usize,
    positions: usize,
    stride: usize,
    /// The coordinate of the frame's first element, negated. It is negative if the first elements of the image are never read.
    padding: i64,
    kernel: usize,
    dilation: usize,
    /// Elements of the kernel after which the remainders of their coordinates by the stride repeat.
    period: usize,
}

impl Axis {
    fn new(window: &Window, axis: usize) -> Axis {
        let (stride, dilation) = (window.stride[axis], window.dilation[axis]);
        // Their greatest common divisor, by Euclid.
        let (mut common, mut rest) = (stride, dilation);
        while rest > 0 {
            (common, rest) = (rest, common % rest);
        }
        Axis {
            image: window.image[axis],
            positions: window.positions[axis],
            stride,
            padding: window.padding[axis] as i64,
            kernel: window.kernel[axis],
            dilation,
            period: stride / common,
        }
    }

    /// Returns the axis of the sums that scatter positions to the image. `None` if the stride is not 1.
    fn reversed(&self) -> Option<Axis> {
        let reach = (self.kernel - 1).checked_mul(self.dilation)?;
        let padding = reach as i64 - self.padding;
        (self.stride == 1).then_some(Axis { image: self.positions, positions: self.image, padding, ..*self })
    }

    /// Returns the elements of a frame after the positions.
    fn extra(&self) -> usize {
        (self.kernel - 1) * self.dilation / self.stride
    }

    /// Returns the number of different remainders.
    fn remainders(&self) -> usize {
        self.period.min(self.kernel)
    }

    /// Returns which of `count` elements of a frame from `first` on are in the image, for a remainder, and the coordinate of the first of these.
    fn inside(&self, number: usize, first: usize, count: usize) -> (Range<usize>, usize) {
        let (stride, count) = (self.stride as i64, count as i64);
        let start = (first * self.stride + number * self.dilation % self.stride) as i64 - self.padding;
        let until = |coordinate: i64| ((coordinate - start + stride - 1).max(0) / stride).min(count);
        let (low, high) = (until(0), until(self.image as i64));
        (low as usize..high.max(low) as usize, (start + low * stride).max(0) as usize)
    }
}

/// The sums of a window over the channels of one group, in blocks of position rows.
#[derive(Clone, Debug)]
pub(in crate::kernels) struct Direct {
    axes: [Axis; 2],
    /// Planes of a frame.
    planes: usize,
    /// Position rows of a block.
    rows: usize,
    /// Rows of a plane of the frame.
    height: usize,
    /// Floats from one row of the frame to the next.
    pitch: usize,
    /// For each channel and element of the kernel, the place of its first position in a frame.
    offsets: Arc<[u32]>,
}

impl Direct {
    /// Returns the sums for `tasks` planes of samples and groups. `None` if a frame would be much larger than the image.
    fn new(axes: [Axis; 2], channels: usize, tasks: usize) -> Option<Direct> {
        let [tall, wide] = axes;
        let depth = channels.checked_mul(tall.kernel)?.checked_mul(wide.kernel)?;
        if axes.iter().any(|axis| axis.image == 0 || axis.positions == 0) || !(1..=DEPTH).contains(&depth) {
            return None;
        }
        let pitch = wide.positions.checked_add(wide.extra())?;
        let planes = tall.remainders() * wide.remainders();
        // Large gaps in a kernel, or a large padding.
        let larger = wide.image.max(wide.positions).saturating_mul(tall.image.max(tall.positions));
        let whole = pitch.checked_mul(tall.positions.checked_add(tall.extra())?)?;
        if whole.checked_mul(planes)? > larger.saturating_mul(4).saturating_add(FRAME) {
            return None;
        }
        let each = channels.checked_mul(planes)?.checked_mul(pitch)?;
        let fitting = (FRAME / each.max(1)).saturating_sub(tall.extra()).max(tall.extra());
        let rows = fitting.min(tall.positions.div_ceil(TASKS.div_ceil(tasks.max(1))));
        let rows = rows.max(POSITIONS.div_ceil(pitch)).min(tall.positions).max(1);
        let height = rows + tall.extra();
        let plane = height * pitch;
        // Offsets have 32 bits.
        u32::try_from(channels.checked_mul(planes)?.checked_mul(plane)?).ok()?;
        let mut offsets = Vec::with_capacity(depth);
        for channel in 0..channels {
            for ky in 0..tall.kernel {
                for kx in 0..wide.kernel {
                    let number = ky % tall.period * wide.remainders() + kx % wide.period;
                    let [down, across] = [ky * tall.dilation / tall.stride, kx * wide.dilation / wide.stride];
                    let place = (channel * planes + number) * plane + down * pitch + across;
                    offsets.push(place as u32);
                }
            }
        }
        Some(Direct { axes, rows, height, pitch, offsets: offsets.into(), planes: channels * planes })
    }

    /// Returns the sums of a convolution's output, over `channels` channels of the image.
    pub(in crate::kernels) fn gather(window: &Window, channels: usize, tasks: usize) -> Option<Direct> {
        Direct::new([Axis::new(window, 0), Axis::new(window, 1)], channels, tasks)
    }

    /// Returns the sums of an image's gradient, over `channels` channels of the positions. `None` if a stride is not 1.
    pub(in crate::kernels) fn scatter(window: &Window, channels: usize, tasks: usize) -> Option<Direct> {
        Direct::new([Axis::new(window, 0).reversed()?, Axis::new(window, 1).reversed()?], channels, tasks)
    }

    /// Returns the sums' terms: the channels times the elements of the kernel.
    fn depth(&self) -> usize {
        self.offsets.len()
    }

    /// Returns the floats of a frame, with those that are read after its end, where no position is.
    fn frame_length(&self) -> usize {
        self.planes * self.height * self.pitch + self.axes[1].extra() + LANES
    }

    /// Copies what positions in rows from `first` on read of an image into a frame.
    fn fill(&self, image: &[f32], first: usize, frame: &mut [f32]) {
        let [tall, wide] = self.axes;
        let step = wide.stride;
        let (planes, rest) = frame.split_at_mut(self.planes * self.height * self.pitch);
        rest.fill(0.0);
        let mut planes = planes.chunks_exact_mut(self.height * self.pitch);
        for image in image.chunks_exact(tall.image * wide.image) {
            for down in 0..tall.remainders() {
                let (rows, y) = tall.inside(down, first, self.height);
                for across in 0..wide.remainders() {
                    let (columns, x) = wide.inside(across, 0, self.pitch);
                    let Some(plane) = planes.next() else { return };
                    for (row, line) in plane.chunks_exact_mut(self.pitch).enumerate() {
                        if !rows.contains(&row) || columns.is_empty() {
                            line.fill(0.0);
                            continue;
                        }
                        let y = y + (row - rows.start) * tall.stride;
                        let pixels = &image[y * wide.image + x..(y + 1) * wide.image];
                        line[..columns.start].fill(0.0);
                        line[columns.end..].fill(0.0);
                        let line = &mut line[columns.clone()];
                        match step {
                            1 => line.copy_from_slice(&pixels[..line.len()]),
                            _ => line.iter_mut().zip(pixels.iter().step_by(step)).for_each(|(to, x)| *to = *x),
                        }
                    }
                }
            }
        }
    }

    /// Computes all positions of some channels on all threads: `out[p] (+)= bias[p] + sum over terms of weight[p] * image`.
    pub(in crate::kernels) fn sum(
        &self,
        image: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        out: MatrixMut<'_>,
        add: bool,
    ) {
        self.sum_rows(
            &|first, out| {
                with_scratch(self.frame_length(), |frame| {
                    self.fill(image, first, frame);
                    dispatch(Sum { of: self, frame, weight, bias, out, add });
                });
            },
            0,
            out,
        );
    }

    /// Calls `block` with each block of the position rows from `first` on: its first row, and its columns of `out`.
    fn sum_rows(&self, block: &(dyn Fn(usize, MatrixMut<'_>) + Sync), first: usize, out: MatrixMut<'_>) {
        let across = self.axes[1].positions;
        let blocks = (out.width() / across).div_ceil(self.rows);
        if blocks <= 1 {
            return block(first, out);
        }
        let rows = blocks / 2 * self.rows;
        let (upper, lower) = out.split_columns(rows * across);
        rayon::join(|| self.sum_rows(block, first, upper), || self.sum_rows(block, first + rows, lower));
    }

    /// Copies the position rows of a block from `first` on to maps with rows as long as those of the frame, and zeros between them.
    fn spread<'m>(&self, positions: &[f32], first: usize, maps: impl Iterator<Item = &'m mut [f32]>) {
        let [tall, wide] = self.axes;
        let across = wide.positions;
        for (map, positions) in maps.zip(positions.chunks_exact(tall.positions * across)) {
            let mut lines = positions[first * across..].chunks_exact(across).take(self.rows);
            for to in map.chunks_mut(self.pitch) {
                let (inside, outside) = to.split_at_mut(across.min(to.len()));
                match lines.next() {
                    Some(line) => inside.copy_from_slice(line),
                    None => inside.fill(0.0),
                }
                outside.fill(0.0);
            }
        }
    }

    /// Adds to the gradient of the weight what one sample contributes: `out[p, term] (+)= sum over o of positions[p, o] * image`.
    ///
    /// `positions` and `out` have the rows of some position channels.
    pub(in crate::kernels) fn weigh(&self, image: &[f32], positions: &[f32], out: &mut [f32], add: bool) {
        let [tall, wide] = self.axes;
        let channels = positions.len() / (tall.positions * wide.positions);
        // Whole vectors, of which the last one's rest is zeros.
        let length = (self.rows * self.pitch).next_multiple_of(LANES);
        with_scratch(self.frame_length() + channels * length, |scratch| {
            let (frame, maps) = scratch.split_at_mut(self.frame_length());
            for first in (0..tall.positions).step_by(self.rows) {
                self.fill(image, first, frame);
                self.spread(positions, first, maps.chunks_exact_mut(length));
                dispatch(Weigh { of: self, frame, maps, length, out, add: add || first > 0 });
            }
        });
    }
}

/// A block of position rows, and the frame that it reads.
struct Sum<'a, 'o> {
    of: &'a Direct,
    frame: &'a [f32],
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    out: MatrixMut<'o>,
    add: bool,
}

impl WithSimd for Sum<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        // Sums, a row of vectors and a weight fill the registers.
        let next = if S::REGISTER_COUNT >= 32 { self.channels::<S, 8, 3>(simd, 0) } else { 0 };
        let next = self.channels::<S, 4, 3>(simd, next);
        let next = self.channels::<S, 2, 4>(simd, next);
        self.channels::<S, 1, 4>(simd, next);
    }
}

impl Sum<'_, '_> {
    /// Computes `R` position channels from `first` on, as long as there are so many, with `V` vectors at once, more than 2. Returns the next channel.
    #[inline(always)]
    fn channels<S: Simd, const R: usize, const V: usize>(&mut self, simd: S, first: usize) -> usize {
        let end = first + (self.out.height() - first) / R * R;
        if first == end {
            return end;
        }
        let (pitch, across) = (self.of.pitch, self.of.axes[1].positions);
        let length = (self.out.width() / across - 1) * pitch + across;
        let mut at = 0;
        while at < length {
            let vectors = match (length - at).div_ceil(S::F32_LANES) {
                rest if rest >= V => V,
                1 => 1,
                _ => 2,
            };
            for channel in (first..end).step_by(R) {
                match vectors {
                    1 => self.tile::<S, R, 1>(simd, channel, at, length),
                    2 => self.tile::<S, R, 2>(simd, channel, at, length),
                    _ => self.tile::<S, R, V>(simd, channel, at, length),
                }
            }
            at += vectors * S::F32_LANES;
        }
        end
    }

    /// Computes `R` channels from `first` on at `V` vectors of positions from `at` on.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize>(&mut self, simd: S, first: usize, at: usize, length: usize) {
        let depth = self.of.depth();
        let weights: [&[f32]; R] = std::array::from_fn(|r| &self.weight[(first + r) * depth..][..depth]);
        let mut all = [[simd.splat_f32s(0.0); V]; R];
        for start in (0..depth).step_by(TERMS) {
            let end = depth.min(start + TERMS);
            let offsets = &self.of.offsets[start..end];
            let weights: [&[f32]; R] = std::array::from_fn(|r| &weights[r][start..end]);
            let sums = terms::<S, R, V>(simd, self.frame, offsets, weights, at);
            for (all, sums) in all.iter_mut().zip(sums) {
                for (all, sum) in all.iter_mut().zip(sums) {
                    *all = simd.add_f32s(*all, sum);
                }
            }
        }
        let mut floats = [[0.0; VECTORS * LANES]; R];
        for (floats, all) in floats.iter_mut().zip(&all) {
            let (to, _) = S::as_mut_simd_f32s(floats);
            to[..V].copy_from_slice(all);
        }
        self.store(first, at..length.min(at + V * S::F32_LANES), &floats);
    }

    /// Stores the sums of some channels at a run of positions, without those between two rows.
    #[inline(always)]
    fn store(&mut self, first: usize, run: Range<usize>, sums: &[[f32; VECTORS * LANES]]) {
        let (pitch, across, add) = (self.of.pitch, self.of.axes[1].positions, self.add);
        let mut at = run.start;
        while at < run.end {
            let (row, x) = (at / pitch, at % pitch);
            if x >= across {
                at = (row + 1) * pitch;
                continue;
            }
            let count = (across - x).min(run.end - at);
            for (channel, sums) in sums.iter().enumerate() {
                let bias = self.bias.map_or(0.0, |bias| bias[first + channel]);
                let sums = &sums[at - run.start..][..count];
                let out = &mut self.out.row(first + channel)[row * across + x..][..count];
                if add {
                    out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum + bias);
                } else {
                    out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum + bias);
                }
            }
            at += count;
        }
    }
}

/// Returns sums of weights times floats of a frame: `R` rows of weights, `V` vectors from `at` on.
#[inline(always)]
fn terms<S: Simd, const R: usize, const V: usize>(
    simd: S,
    frame: &[f32],
    offsets: &[u32],
    weights: [&[f32]; R],
    at: usize,
) -> [[S::f32s; V]; R] {
    let mut sums = [[simd.splat_f32s(0.0); V]; R];
    for (term, &offset) in offsets.iter().enumerate() {
        let (columns, _) = S::as_simd_f32s(&frame[offset as usize + at..][..V * S::F32_LANES]);
        let columns: [S::f32s; V] = std::array::from_fn(|v| columns[v]);
        for (sums, weights) in sums.iter_mut().zip(&weights) {
            let weight = simd.splat_f32s(weights[term]);
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum = simd.mul_add_e_f32s(weight, column, *sum);
            }
        }
    }
    sums
}

/// A block of position rows of one sample, and the gradient of the weight of some position channels.
struct Weigh<'a> {
    of: &'a Direct,
    frame: &'a [f32],
    /// The positions, in rows as long as those of the frame, with zeros between them. Each map has `length` floats.
    maps: &'a [f32],
    length: usize,
    out: &'a mut [f32],
    add: bool,
}

impl WithSimd for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        // Sums, and a vector of each map.
        let next = if S::REGISTER_COUNT >= 32 { self.channels::<S, 4, 6>(simd, 0) } else { 0 };
        let next = self.channels::<S, 2, 4>(simd, next);
        self.channels::<S, 1, 6>(simd, next);
    }
}

impl Weigh<'_> {
    /// Computes `R` position channels from `first` on, as long as there are so many, with `V` terms at once. Returns the next channel.
    #[inline(always)]
    fn channels<S: Simd, const R: usize, const V: usize>(&mut self, simd: S, first: usize) -> usize {
        let depth = self.of.depth();
        let end = first + (self.out.len() / depth - first) / R * R;
        for channel in (first..end).step_by(R) {
            let mut term = 0;
            while term + V <= depth {
                self.tile::<S, R, V>(simd, channel, term);
                term += V;
            }
            while term < depth {
                self.tile::<S, R, 1>(simd, channel, term);
                term += 1;
            }
        }
        end
    }

    /// Computes `R` channels from `first` on and `V` terms from `term` on.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize>(&mut self, simd: S, first: usize, term: usize) {
        let &mut Weigh { of, frame, maps, length, .. } = self;
        let (depth, offsets) = (of.depth(), &of.offsets[term..][..V]);
        let columns: [&[S::f32s]; V] =
            std::array::from_fn(|v| S::as_simd_f32s(&frame[offsets[v] as usize..][..length]).0);
        let maps: [&[S::f32s]; R] = std::array::from_fn(|r| S::as_simd_f32s(&maps[(first + r) * length..][..length]).0);
        let mut sums = [[simd.splat_f32s(0.0); V]; R];
        for at in 0..length / S::F32_LANES {
            let columns: [S::f32s; V] = std::array::from_fn(|v| columns[v][at]);
            for (sums, map) in sums.iter_mut().zip(&maps) {
                let map = map[at];
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = simd.mul_add_e_f32s(map, column, *sum);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            let out = &mut self.out[(first + r) * depth + term..][..V];
            for (out, sum) in out.iter_mut().zip(sums) {
                let sum = simd.reduce_sum_f32s(sum);
                *out = if self.add { *out + sum } else { sum };
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use gpumem_core::program::ops;
    use pulp::Scalar;
    use pulp::x86::{V3, V4};

    /// Position channels, of which each kind of tile has some.
    const CHANNELS: usize = 15;

    fn numbers(count: usize, factor: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * factor) % 2039) as f32 / 2039.0 - 0.4).collect()
    }

    /// Returns gathered sums and the gradient of the weight, computed with the vectors of an instruction set.
    fn sums<S: Simd>(simd: S) -> [Vec<f32>; 2] {
        let window = ops::Window { kernel_size: [3, 5], stride: [1, 2], padding: [1, 2], dilation: [1, 1] };
        let window = Window::new([[13, 37], [13, 19]], &window).unwrap();
        // So many tasks that all rows are one block.
        let direct = Direct::gather(&window, 3, TASKS).unwrap();
        assert_eq!(direct.rows, 13);
        let (image, weight) = (numbers(3 * 13 * 37, 5), numbers(CHANNELS * direct.depth(), 11));
        let mut frame = vec![f32::NAN; direct.frame_length()];
        direct.fill(&image, 0, &mut frame);
        let mut gathered = numbers(CHANNELS * 13 * 19, 7);
        let length = (direct.rows * direct.pitch).next_multiple_of(LANES);
        let mut maps = vec![f32::NAN; CHANNELS * length];
        direct.spread(&gathered, 0, maps.chunks_exact_mut(length));
        let out = MatrixMut::new(&mut gathered, CHANNELS, 13 * 19, 13 * 19);
        simd.vectorize(Sum { of: &direct, frame: &frame, weight: &weight, bias: None, out, add: true });
        let mut weighed = numbers(weight.len(), 3);
        simd.vectorize(Weigh { of: &direct, frame: &frame, maps: &maps, length, out: &mut weighed, add: true });
        [gathered, weighed]
    }

    #[test]
    fn instruction_sets_agree() {
        let expected = sums(Scalar);
        let found = [V3::try_new().map(sums), V4::try_new().map(sums)];
        for found in found.iter().flatten() {
            for (found, expected) in found.iter().zip(&expected) {
                let most = expected.iter().fold(0f32, |most, x| most.max(x.abs()));
                for (a, b) in found.iter().zip(expected) {
                    assert!((a - b).abs() <= 2e-6 * most, "{a} instead of {b}");
                }
            }
        }
    }
}
