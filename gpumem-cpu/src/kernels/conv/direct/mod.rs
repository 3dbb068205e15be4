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
//! Sums of more than 384 terms are split, as in matrix products.
//!
//! For many position channels, what a run of positions reads is first copied to a panel, as of a [packed matrix](crate::packed), without the gaps
//! between rows. Each copied vector is read for all channels. The gradient of the weight of many position channels is computed by the micro kernels of
//! matrix products, where there are any.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod panels;
mod sums;
mod weights;

use crate::kernels::movement::window::Window;
use crate::matrix::MatrixMut;
use crate::parallel::with_scratch;
use crate::simd::dispatch;
use std::ops::Range;
use std::sync::Arc;
use sums::{PANEL, Sum};
use weights::Weigh;

/// Floats of a frame, half of a common second cache.
const FRAME: usize = 1 << 17;
/// Floats of the frames that one sum over positions reads, at most.
const FRAMES: usize = 1 << 18;
/// The fewest positions over which a vector is summed before its numbers are added up, if there are so many. Those of three maps fit a first cache.
const SUMMED: usize = 512;
/// Positions of a row block, below which another block does not pay off.
const POSITIONS: usize = 192;
/// The fewest tasks into which an operation is split, if its shape allows.
const TASKS: usize = 16;
/// The most terms, whose table of offsets takes 4 MiB.
const DEPTH: usize = 1 << 20;
/// The most numbers of a vector. So many floats are read after the last plane of a frame.
const LANES: usize = 16;
/// The fewest position channels for which panels are copied.
const MANY: usize = 48;

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
                let room = if out.height() < MANY { 0 } else { PANEL };
                with_scratch(self.frame_length() + room, |scratch| {
                    let (frame, room) = scratch.split_at_mut(self.frame_length());
                    self.fill(image, first, frame);
                    dispatch(Sum { of: self, frame, weight, bias, out, add, room });
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

    /// Adds to the gradient of the weight what some samples contribute: `out[p, term] (+)= sum over samples and o of positions[p, o] * image`.
    ///
    /// `of` returns a sample's image and its positions. These and `out` have the rows of some position channels.
    pub(in crate::kernels) fn weigh<'d>(
        &self,
        samples: Range<usize>,
        of: impl Fn(usize) -> [&'d [f32]; 2],
        out: &mut [f32],
        add: bool,
    ) {
        let (tall, each) = (self.axes[0], self.frame_length());
        let channels = out.len() / self.depth();
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if panels::suits(self, channels) {
            return panels::weigh(self, samples, of, out, add);
        }
        // Whole vectors, of which the last one's rest is zeros.
        let length = (self.rows * self.pitch).next_multiple_of(LANES);
        let blocks = tall.positions.div_ceil(self.rows);
        let all = blocks * samples.len();
        let group = SUMMED.div_ceil(length).min(FRAMES / each).max(1);
        let group = all.div_ceil(all.div_ceil(group));
        with_scratch(group * (each + channels * length), |scratch| {
            let (frames, maps) = scratch.split_at_mut(group * each);
            for start in (0..all).step_by(group) {
                let numbers = start..all.min(start + group);
                for ((at, frame), number) in frames.chunks_exact_mut(each).enumerate().zip(numbers.clone()) {
                    let [image, positions] = of(samples.start + number / blocks);
                    let first = number % blocks * self.rows;
                    self.fill(image, first, frame);
                    let maps = maps.chunks_exact_mut(group * length);
                    self.spread(positions, first, maps.map(|map| &mut map[at * length..][..length]));
                }
                let frames = &frames[..numbers.len() * each];
                dispatch(Weigh { of: self, frames, maps, group, length, out, add: add || start > 0 });
            }
        });
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use gpumem_core::program::ops;
    use pulp::x86::{V3, V4};
    use pulp::{Scalar, Simd};

    /// Position channels, of which each kind of tile has some.
    const CHANNELS: usize = 15;

    fn numbers(count: usize, factor: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * factor) % 2039) as f32 / 2039.0 - 0.4).collect()
    }

    /// Returns gathered sums, those by panels, and the gradient of the weight, computed with the vectors of an instruction set.
    fn sums<S: Simd>(simd: S) -> [Vec<f32>; 3] {
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
        // Two blocks, of equal positions.
        let mut maps = vec![f32::NAN; CHANNELS * 2 * length];
        for at in 0..2 {
            let maps = maps.chunks_exact_mut(2 * length).map(|map| &mut map[at * length..][..length]);
            direct.spread(&gathered, 0, maps);
        }
        let frames = frame.repeat(2);
        let out = MatrixMut::new(&mut gathered, CHANNELS, 13 * 19, 13 * 19);
        simd.vectorize(Sum { of: &direct, frame: &frame, weight: &weight, bias: None, out, add: true, room: &mut [] });
        let mut copied = numbers(CHANNELS * 13 * 19, 7);
        let (out, room) = (MatrixMut::new(&mut copied, CHANNELS, 13 * 19, 13 * 19), &mut vec![f32::NAN; PANEL][..]);
        simd.vectorize(Sum { of: &direct, frame: &frame, weight: &weight, bias: None, out, add: true, room });
        let mut weighed = numbers(weight.len(), 3);
        simd.vectorize(Weigh {
            of: &direct,
            frames: &frames,
            maps: &maps,
            group: 2,
            length,
            out: &mut weighed,
            add: true,
        });
        [gathered, copied, weighed]
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
