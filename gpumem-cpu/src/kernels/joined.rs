//! The three products behind convolutions on small maps, where one sample's matrix would have too few columns to be worth a
//! product: several samples are unfolded next to each other and make one.
//!
//! P channels of positions, D = C * kernel rows of an unfolded image, W = samples * positions columns.
//!
//! ```text
//! gather   [P, W] = weight [P, D] * unfolded [D, W]
//! scatter  unfolded [W, D] = positions [P, W]^T * weight [P, D], folded
//! weigh    weight [P, D] = positions [P, W] * unfolded [W, D]
//! ```

use super::window::Window;
use crate::matrix::{Matrix, MatrixMut, product_parallel};
use crate::parallel::{self, grown};
use rayon::prelude::*;

/// Positions of a map up to which samples are joined.
const SMALL: usize = 64;
/// Floats of an unfolded block.
const UNFOLDED: usize = 1 << 21;

/// Element `tap` of the kernel at a position, and the pixel that it reads.
#[derive(Clone, Copy, Debug)]
struct Place {
    tap: usize,
    position: usize,
    pixel: usize,
}

/// What joins samples; for maps that are small.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    /// All that lie inside the image.
    places: Vec<Place>,
    /// Samples that make one product.
    samples: usize,
    /// Channels of a sample's image and of its positions.
    images: usize,
    positions: usize,
    image_area: usize,
    area: usize,
    taps: usize,
}

impl Joined {
    /// For `samples` samples, if joining them is worth its while.
    pub(super) fn new(window: &Window, [images, positions]: [usize; 2], samples: usize) -> Option<Joined> {
        let (area, taps) = (window.positions_area(), window.kernel_area());
        if area == 0 || area > SMALL {
            return None;
        }
        let fitting = UNFOLDED / images.saturating_mul(taps).saturating_mul(area).max(1);
        // All products of a batch have about as many samples.
        let together = samples.div_ceil(samples.div_ceil(fitting.max(1)).max(1));
        if together < 2 {
            return None;
        }
        let mut places = Vec::new();
        for tap in 0..taps {
            let (ky, kx) = (tap / window.kernel[1], tap % window.kernel[1]);
            for position in 0..area {
                let (row, column) = (position / window.positions[1], position % window.positions[1]);
                if let (Some(y), Some(x)) = (window.coordinate(0, row, ky), window.coordinate(1, column, kx)) {
                    places.push(Place { tap, position, pixel: y * window.image[1] + x });
                }
            }
        }
        let image_area = window.image_area();
        Some(Joined { places, samples: together, images, positions, image_area, area, taps })
    }

    /// Rows of an unfolded image.
    fn depth(&self) -> usize {
        self.images * self.taps
    }

    /// Elements of the images and of the positions that make one product.
    fn lengths(&self) -> [usize; 2] {
        [self.images * self.image_area, self.positions * self.area].map(|sample| self.samples * sample)
    }

    /// Room for an unfolded block, and for one of positions, of `width` columns.
    fn room<'s>(&self, width: usize, scratch: &'s mut Vec<f32>) -> (&'s mut [f32], &'s mut [f32]) {
        grown(scratch, (self.depth() + self.positions) * width).split_at_mut(self.depth() * width)
    }

    /// `map[b, p, i]` as `[p, b * i]`.
    fn join(&self, map: &[f32], out: &mut [f32]) {
        let width = map.len() / self.positions;
        out.par_chunks_mut(width).enumerate().for_each(|(p, row)| {
            for (sample, part) in row.chunks_exact_mut(self.area).enumerate() {
                part.copy_from_slice(&map[(sample * self.positions + p) * self.area..][..self.area]);
            }
        });
    }

    /// See `correlation`.
    pub(super) fn gather(
        &self,
        images: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        out: &mut [f32],
        add: bool,
        scratch: &mut Vec<f32>,
    ) {
        let [image_length, length] = self.lengths();
        for (images, out) in images.chunks(image_length).zip(out.chunks_mut(length)) {
            let (depth, width) = (self.depth(), out.len() / self.positions);
            let (unfolded, joined) = self.room(width, scratch);
            unfolded.par_chunks_mut(self.taps * width).enumerate().for_each(|(channel, rows)| {
                rows.fill(0.0);
                for sample in 0..width / self.area {
                    let plane = &images[(sample * self.images + channel) * self.image_area..][..self.image_area];
                    let rows = &mut rows[sample * self.area..];
                    for place in &self.places {
                        rows[place.tap * width + place.position] = plane[place.pixel];
                    }
                }
            });
            let unfolded = Matrix::new(unfolded, depth, width, width);
            let weight = Matrix::new(weight, self.positions, depth, depth);
            product_parallel(MatrixMut::new(joined, self.positions, width, width), weight, unfolded, false);
            let joined = &*joined;
            out.par_chunks_mut(self.area).enumerate().for_each(|(plane, out)| {
                let (sample, p) = (plane / self.positions, plane % self.positions);
                let bias = bias.map_or(0.0, |bias| bias[p]);
                let joined = &joined[p * width + sample * self.area..][..self.area];
                parallel::store(out, add, |i| joined[i] + bias);
            });
        }
    }

    /// See `correlation`.
    pub(super) fn scatter(
        &self,
        positions: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        out: &mut [f32],
        add: bool,
        scratch: &mut Vec<f32>,
    ) {
        let [image_length, length] = self.lengths();
        for (positions, out) in positions.chunks(length).zip(out.chunks_mut(image_length)) {
            let (depth, width) = (self.depth(), positions.len() / self.positions);
            let (unfolded, joined) = self.room(width, scratch);
            self.join(positions, joined);
            let joined = Matrix::new(joined, self.positions, width, width);
            let weight = Matrix::new(weight, self.positions, depth, depth);
            product_parallel(MatrixMut::new(unfolded, width, depth, depth), joined.t(), weight, false);
            let unfolded = &*unfolded;
            out.par_chunks_mut(self.image_area).enumerate().for_each(|(plane, out)| {
                let (sample, channel) = (plane / self.images, plane % self.images);
                let bias = bias.map_or(0.0, |bias| bias[channel]);
                parallel::store(out, add, |_| bias);
                let unfolded = &unfolded[sample * self.area * depth + channel * self.taps..];
                for place in &self.places {
                    out[place.pixel] += unfolded[place.position * depth + place.tap];
                }
            });
        }
    }

    /// See `correlation`.
    pub(super) fn weigh(&self, images: &[f32], positions: &[f32], out: &mut [f32], add: bool, scratch: &mut Vec<f32>) {
        let [image_length, length] = self.lengths();
        let blocks = images.chunks(image_length).zip(positions.chunks(length));
        for (block, (images, positions)) in blocks.enumerate() {
            let (depth, width) = (self.depth(), positions.len() / self.positions);
            let (unfolded, joined) = self.room(width, scratch);
            self.join(positions, joined);
            unfolded.par_chunks_mut(self.area * depth).enumerate().for_each(|(sample, rows)| {
                rows.fill(0.0);
                let planes = images[sample * self.images * self.image_area..].chunks_exact(self.image_area);
                for (channel, plane) in planes.take(self.images).enumerate() {
                    let rows = &mut rows[channel * self.taps..];
                    for place in &self.places {
                        rows[place.position * depth + place.tap] = plane[place.pixel];
                    }
                }
            });
            let joined = Matrix::new(joined, self.positions, width, width);
            let unfolded = Matrix::new(unfolded, width, depth, depth);
            let out = MatrixMut::new(out, self.positions, depth, depth);
            product_parallel(out, joined, unfolded, add || block > 0);
        }
    }
}
