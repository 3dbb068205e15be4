//! The gradient of the weight: sums over positions.

use super::{Direct, FRAME};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// A multiple of the terms of each tile of a weight's gradient.
const WHOLE: usize = 12;

/// Blocks of position rows of some samples, and the gradient of the weight of some position channels.
pub(super) struct Weigh<'a> {
    pub(super) of: &'a Direct,
    /// A frame for each block.
    pub(super) frames: &'a [f32],
    /// The positions, in rows as long as those of a frame, with zeros between them. Each map has `length` floats for each of `group` blocks.
    pub(super) maps: &'a [f32],
    pub(super) group: usize,
    pub(super) length: usize,
    pub(super) out: &'a mut [f32],
    pub(super) add: bool,
}

impl WithSimd for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let depth = self.of.depth();
        // What the channels read of the frames for a block of terms stays in the second cache.
        let block = depth.div_ceil(self.frames.len().div_ceil(FRAME / 2)).next_multiple_of(WHOLE);
        for terms in (0..depth).step_by(block).map(|start| start..depth.min(start + block)) {
            // Sums, and a vector of each map.
            let next = if S::REGISTER_COUNT >= 32 { self.channels::<S, 4, 6>(simd, 0, terms.clone()) } else { 0 };
            let next = self.channels::<S, 3, 3>(simd, next, terms.clone());
            let next = self.channels::<S, 2, 4>(simd, next, terms.clone());
            self.channels::<S, 1, 6>(simd, next, terms);
        }
    }
}

impl Weigh<'_> {
    /// Computes `R` position channels from `first` on, as long as there are so many, with `V` terms at once. Returns the next channel.
    #[inline(always)]
    fn channels<S: Simd, const R: usize, const V: usize>(
        &mut self,
        simd: S,
        first: usize,
        terms: Range<usize>,
    ) -> usize {
        let end = first + (self.out.len() / self.of.depth() - first) / R * R;
        for channel in (first..end).step_by(R) {
            let mut term = terms.start;
            while term + V <= terms.end {
                self.tile::<S, R, V>(simd, channel, term);
                term += V;
            }
            while term < terms.end {
                self.tile::<S, R, 1>(simd, channel, term);
                term += 1;
            }
        }
        end
    }

    /// Computes `R` channels from `first` on and `V` terms from `term` on.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize>(&mut self, simd: S, first: usize, term: usize) {
        let &mut Weigh { of, frames, maps, group, length, .. } = self;
        let (depth, offsets) = (of.depth(), &of.offsets[term..][..V]);
        let mut sums = [[simd.splat_f32s(0.0); V]; R];
        for (block, frame) in frames.chunks_exact(of.frame_length()).enumerate() {
            let columns: [&[S::f32s]; V] =
                std::array::from_fn(|v| S::as_simd_f32s(&frame[offsets[v] as usize..][..length]).0);
            let place = |r: usize| ((first + r) * group + block) * length;
            let maps: [&[S::f32s]; R] = std::array::from_fn(|r| S::as_simd_f32s(&maps[place(r)..][..length]).0);
            for at in 0..length / S::F32_LANES {
                let columns: [S::f32s; V] = std::array::from_fn(|v| columns[v][at]);
                for (sums, map) in sums.iter_mut().zip(&maps) {
                    let map = map[at];
                    for (sum, column) in sums.iter_mut().zip(columns) {
                        *sum = simd.mul_add_e_f32s(map, column, *sum);
                    }
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
