//! Depthwise convolutions on small maps, whose rows have fewer positions than a vector has numbers.
//!
//! Vectors go through channels instead: [`LANES`] planes are turned so that the elements of one place are adjacent, `[plane, place]` to
//! `[place, plane]`. Each of the three products of [`correlation`](super::correlation) is then a list of pairs of places, whose products are summed
//! for each place of the result. Pairs in the padding are not in the list.

use crate::kernels::movement::window::Window;
use crate::parallel::{grown, with_scratch};
use crate::simd::dispatch;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::sync::Arc;

/// Planes that are turned at once: the numbers of the widest vector.
const LANES: usize = 16;
/// The most pairs of a product. Their list and the turned planes fit a second cache.
const PAIRS: usize = 1 << 12;
/// Planes that are turned together.
const ACROSS: usize = 4;

/// A product: the pairs of places of each place of the result, in order, and the end of each list.
#[derive(Clone, Debug)]
struct Pairs {
    pairs: Arc<[[u32; 2]]>,
    ends: Arc<[u32]>,
}

impl Pairs {
    /// Gathers pairs by their place in a result of `count` places.
    fn new(count: usize, of: impl Iterator<Item = (usize, [usize; 2])>) -> Pairs {
        let mut lists = vec![Vec::new(); count];
        of.for_each(|(place, pair)| lists[place].push(pair.map(|place| place as u32)));
        let ends = lists.iter().scan(0, |end, list| {
            *end += list.len() as u32;
            Some(*end)
        });
        Pairs { ends: ends.collect(), pairs: lists.concat().into() }
    }
}

/// A depthwise convolution of maps that are so small that each vector has one place of several channels.
#[derive(Clone, Debug)]
pub(in crate::kernels) struct Depthwise {
    channels: usize,
    /// Places of an image, of the positions and of the kernel.
    image: usize,
    positions: usize,
    kernel: usize,
    /// Pairs of kernel and image, for each position.
    gathers: Pairs,
    /// Pairs of kernel and position, for each pixel.
    scatters: Pairs,
    /// Pairs of position and pixel, for each place of the kernel.
    weighs: Pairs,
}

impl Depthwise {
    /// Returns the products of `channels` channels. `None` if the maps are large or the channels few.
    pub(in crate::kernels) fn new(window: &Window, channels: usize) -> Option<Depthwise> {
        let [image, positions, kernel] = [window.image_area(), window.positions_area(), window.kernel_area()];
        let most = positions.max(image).max(kernel);
        if channels < LANES || most == 0 || most.checked_mul(kernel)? > PAIRS || positions.checked_mul(kernel)? > PAIRS
        {
            return None;
        }
        let of_position = |position: usize| {
            (0..kernel).filter_map(move |k| {
                let y = window.coordinate(0, position / window.positions[1], k / window.kernel[1])?;
                let x = window.coordinate(1, position % window.positions[1], k % window.kernel[1])?;
                Some([position, k, y * window.image[1] + x])
            })
        };
        let all: Vec<[usize; 3]> = (0..positions).flat_map(of_position).collect();
        Some(Depthwise {
            channels,
            image,
            positions,
            kernel,
            gathers: Pairs::new(positions, all.iter().map(|&[position, k, pixel]| (position, [k, pixel]))),
            scatters: Pairs::new(image, all.iter().map(|&[position, k, pixel]| (pixel, [k, position]))),
            weighs: Pairs::new(kernel, all.iter().map(|&[position, k, pixel]| (k, [position, pixel]))),
        })
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
        self.sum(&self.gathers, (images, self.image), (out, self.positions), (weight, bias), add, scratch);
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
        self.sum(&self.scatters, (positions, self.positions), (out, self.image), (weight, bias), add, scratch);
    }

    /// Computes the sums of `pairs` over the weight and the planes of `from`, each with its places.
    fn sum(
        &self,
        pairs: &Pairs,
        (from, places): (&[f32], usize),
        (out, out_places): (&mut [f32], usize),
        (weight, bias): (&[f32], Option<&[f32]>),
        add: bool,
        scratch: &mut Vec<f32>,
    ) {
        let blocks = self.channels.div_ceil(LANES);
        let weights = grown(scratch, blocks * self.kernel * LANES);
        for (weight, to) in weight.chunks(LANES * self.kernel).zip(weights.chunks_exact_mut(self.kernel * LANES)) {
            turn(weight, self.kernel, to);
        }
        let weights = &*weights;
        let samples = out.par_chunks_mut(self.channels * out_places).zip(from.par_chunks(self.channels * places));
        samples.for_each(|(out, from)| {
            let planes = out.par_chunks_mut(LANES * out_places).zip(from.par_chunks(LANES * places));
            planes.enumerate().for_each(|(block, (out, from))| {
                let weight = &weights[block * self.kernel * LANES..][..self.kernel * LANES];
                let mut start = [0.0; LANES];
                if let Some(bias) = bias {
                    start.iter_mut().zip(&bias[block * LANES..]).for_each(|(start, bias)| *start = *bias);
                }
                with_scratch((places + out_places) * LANES, |scratch| {
                    let (turned, sums) = scratch.split_at_mut(places * LANES);
                    turn(from, places, turned);
                    dispatch(Multiply { pairs, factors: [weight, turned], start: &start, sums, add: false });
                    turn_back(sums, out, out_places, add);
                });
            });
        });
    }

    /// Computes the gradient of the weight: see `correlation`.
    pub(in crate::kernels) fn weigh(&self, images: &[f32], positions: &[f32], out: &mut [f32], add: bool) {
        let Depthwise { channels, image, positions: places, kernel, .. } = *self;
        let samples = images.chunks_exact(channels * image).zip(positions.chunks_exact(channels * places));
        out.par_chunks_mut(LANES * kernel).enumerate().for_each(|(block, out)| {
            let (first, count) = (block * LANES, out.len() / kernel);
            with_scratch((image + places + kernel) * LANES, |scratch| {
                let (pixels, rest) = scratch.split_at_mut(image * LANES);
                let (turned, sums) = rest.split_at_mut(places * LANES);
                sums.fill(0.0);
                for (images, positions) in samples.clone() {
                    turn(&images[first * image..][..count * image], image, pixels);
                    turn(&positions[first * places..][..count * places], places, turned);
                    let start = &[0.0; LANES];
                    dispatch(Multiply { pairs: &self.weighs, factors: [turned, pixels], start, sums, add: true });
                }
                turn_back(sums, out, kernel, add);
            });
        });
    }
}

/// Turns at most [`LANES`] planes of `places` elements. Planes that are missing are zeros.
fn turn(planes: &[f32], places: usize, out: &mut [f32]) {
    let out = out.as_chunks_mut::<LANES>().0;
    for lane in (0..LANES).step_by(ACROSS) {
        let plane = |number: usize| planes.get((lane + number) * places..(lane + number + 1) * places);
        let rows: [&[f32]; ACROSS] = std::array::from_fn(|number| plane(number).unwrap_or_default());
        let groups = out.iter_mut().filter_map(|lanes| lanes[lane..].first_chunk_mut());
        if let [a, b, c, d] = rows
            && !d.is_empty()
        {
            groups.zip(a).zip(b).zip(c).zip(d).for_each(|((((to, a), b), c), d)| *to = [*a, *b, *c, *d]);
        } else {
            let of_place = |place: usize| rows.map(|row| row.get(place).copied().unwrap_or_default());
            groups.enumerate().for_each(|(place, to)| *to = of_place(place));
        }
    }
}

/// Turns sums back to planes of `places` elements, or adds them to the planes.
fn turn_back(sums: &[f32], planes: &mut [f32], places: usize, add: bool) {
    let sums = sums.as_chunks::<LANES>().0;
    for (lane, plane) in planes.chunks_exact_mut(places).take(LANES).enumerate() {
        for (to, sums) in plane.iter_mut().zip(sums) {
            *to = if add { *to + sums[lane] } else { sums[lane] };
        }
    }
}

/// Sums of products of places, for each place of `sums`.
struct Multiply<'a> {
    pairs: &'a Pairs,
    /// The turned places of the first and of the second factor.
    factors: [&'a [f32]; 2],
    /// The first term of each sum.
    start: &'a [f32; LANES],
    sums: &'a mut [f32],
    add: bool,
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match LANES / S::F32_LANES {
            1 => self.vectors::<S, 1>(simd),
            2 => self.vectors::<S, 2>(simd),
            4 => self.vectors::<S, 4>(simd),
            _ => self.vectors::<S, LANES>(simd),
        }
    }
}

impl Multiply<'_> {
    /// Computes the sums with `V` vectors for each place.
    #[inline(always)]
    fn vectors<S: Simd, const V: usize>(self, simd: S) {
        let [left, right] = self.factors.map(|factor| S::as_simd_f32s(factor).0.as_chunks::<V>().0);
        let sums = S::as_mut_simd_f32s(self.sums).0.as_chunks_mut::<V>().0;
        let start: [S::f32s; V] = std::array::from_fn(|v| S::as_simd_f32s(self.start).0[v]);
        let mut first = 0;
        for (to, &end) in sums.iter_mut().zip(&*self.pairs.ends) {
            let mut sum = start;
            for &[a, b] in &self.pairs.pairs[first..end as usize] {
                let (a, b) = (&left[a as usize], &right[b as usize]);
                for v in 0..V {
                    sum[v] = simd.mul_add_e_f32s(a[v], b[v], sum[v]);
                }
            }
            for v in 0..V {
                to[v] = if self.add { simd.add_f32s(to[v], sum[v]) } else { sum[v] };
            }
            first = end as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::program::ops;

    const SAMPLES: usize = 3;

    fn numbers(count: usize, factor: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * factor) % 2039) as f32 / 2039.0 - 0.4).collect()
    }

    /// Asserts that sums which began with `start` are near those in double precision, of at most 100 terms below 1.
    fn close(what: &str, found: &[f32], start: &[f32], add: bool, sums: &[f64]) {
        for (i, (found, sum)) in found.iter().zip(sums).enumerate() {
            let expected = sum + if add { f64::from(start[i]) } else { 0.0 };
            assert!((f64::from(*found) - expected).abs() <= 1e-5, "{what}, element {i}: {found} instead of {expected}");
        }
    }

    /// Returns the three products by their definition in double precision: of the positions, the images and the weight.
    fn by_definition(window: &Window, [images, positions, weight]: [&[f32]; 3], bias: &[f32]) -> [Vec<f64>; 3] {
        let [image, area, kernel] = [window.image_area(), window.positions_area(), window.kernel_area()];
        let channels = bias.len();
        let of_bias = |area: usize| {
            let plane = |plane: usize| std::iter::repeat_n(f64::from(bias[plane % channels]), area);
            (0..SAMPLES * channels).flat_map(plane).collect::<Vec<f64>>()
        };
        let (mut of_positions, mut of_images, mut of_weight) = (of_bias(area), of_bias(image), vec![0.0; weight.len()]);
        for plane in 0..SAMPLES * channels {
            for (position, k) in (0..area).flat_map(|position| (0..kernel).map(move |k| (position, k))) {
                let y = window.coordinate(0, position / window.positions[1], k / window.kernel[1]);
                let x = window.coordinate(1, position % window.positions[1], k % window.kernel[1]);
                let Some((y, x)) = y.zip(x) else { continue };
                let at_image = plane * image + y * window.image[1] + x;
                let (at_position, at_weight) = (plane * area + position, plane % channels * kernel + k);
                let [of_image, of_position, factor] =
                    [images[at_image], positions[at_position], weight[at_weight]].map(f64::from);
                of_positions[at_position] += of_image * factor;
                of_images[at_image] += of_position * factor;
                of_weight[at_weight] += of_image * of_position;
            }
        }
        [of_positions, of_images, of_weight]
    }

    /// Channels that are whole blocks or not, strides, gaps, paddings, and maps of one row.
    #[test]
    fn products_agree_with_their_definition() {
        for (channels, image, kernel_size, stride, padding, dilation) in [
            (16, [6, 6], [3, 3], [1, 1], [1, 1], [1, 1]),
            (19, [7, 5], [3, 3], [2, 2], [1, 1], [1, 1]),
            (37, [1, 12], [1, 5], [1, 2], [0, 2], [1, 1]),
            (20, [9, 8], [3, 2], [1, 1], [2, 3], [2, 3]),
            (33, [2, 3], [5, 5], [1, 1], [2, 2], [1, 1]),
        ] {
            let axis = |axis: usize| -> u64 {
                (image[axis] + 2 * padding[axis] - dilation[axis] * (kernel_size[axis] - 1) - 1) / stride[axis] + 1
            };
            let window = ops::Window { kernel_size, stride, padding, dilation };
            let window = Window::new([image, [axis(0), axis(1)]], &window).unwrap();
            let depthwise = Depthwise::new(&window, channels).unwrap_or_else(|| panic!("{image:?}"));
            let [of_image, of_positions] = [depthwise.image, depthwise.positions].map(|area| area * channels * SAMPLES);
            let weight = numbers(channels * depthwise.kernel, 11);
            let (bias, scratch) = (numbers(channels, 301), &mut Vec::new());
            let (images, positions) = (numbers(of_image, 5), numbers(of_positions, 7));
            let expected = by_definition(&window, [&images, &positions, &weight], &bias);
            for add in [false, true] {
                let what = |name: &str| format!("{name} {image:?}, {add}");
                let start = numbers(of_image.max(of_positions).max(weight.len()), 2);
                let mut found = start[..of_positions].to_vec();
                depthwise.gather(&images, &weight, Some(&bias), &mut found, add, scratch);
                close(&what("gather"), &found, &start, add, &expected[0]);
                let mut found = start[..of_image].to_vec();
                depthwise.scatter(&positions, &weight, Some(&bias), &mut found, add, scratch);
                close(&what("scatter"), &found, &start, add, &expected[1]);
                let mut found = start[..weight.len()].to_vec();
                depthwise.weigh(&images, &positions, &mut found, add);
                close(&what("weigh"), &found, &start, add, &expected[2]);
            }
        }
    }

    /// Channels are no sums, so that all instruction sets that fuse multiplications and additions have equal bits.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn instruction_sets_agree() {
        use pulp::x86::{V3, V4};
        let window = ops::Window { kernel_size: [3, 3], stride: [1, 1], padding: [1, 1], dilation: [1, 1] };
        let window = Window::new([[5, 4], [5, 4]], &window).unwrap();
        let depthwise = Depthwise::new(&window, LANES).unwrap();
        let (weight, image) = (numbers(9 * LANES, 11), numbers(20 * LANES, 5));
        let multiply = |of: &dyn Fn(Multiply<'_>)| {
            let mut sums = numbers(20 * LANES, 3);
            let factors = [&weight[..], &image];
            of(Multiply { pairs: &depthwise.gathers, factors, start: &[0.25; LANES], sums: &mut sums, add: true });
            sums
        };
        let expected = multiply(&|it| Simd::vectorize(pulp::Scalar, it));
        let of_v3 = V3::try_new().map(|simd| multiply(&|it| Simd::vectorize(simd, it)));
        let of_v4 = V4::try_new().map(|simd| multiply(&|it| Simd::vectorize(simd, it)));
        for (i, found) in of_v3.iter().chain(&of_v4).flatten().enumerate() {
            let expected = expected[i % expected.len()];
            assert!((found - expected).abs() <= 2e-6, "element {i}: {found} instead of {expected}");
        }
        assert!(of_v3.is_none() || of_v4.is_none() || of_v3 == of_v4);
    }
}
