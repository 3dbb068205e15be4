//! The sums of position channels over what positions read of a frame.

use super::{Direct, LANES};
use crate::matrix::{Matrix, MatrixMut, TERMS, block_of_terms};
use crate::packed::{self, Panel};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// The most vectors of a tile.
const VECTORS: usize = 4;
/// Floats of a panel's memory, whose start is moved to a cache line.
pub(super) const PANEL: usize = TERMS * packed::VECTORS * LANES + LINE;
/// Floats of a cache line.
const LINE: usize = 16;

/// A block of position rows, and the frame that it reads.
pub(super) struct Sum<'a, 'o> {
    pub(super) of: &'a Direct,
    pub(super) frame: &'a [f32],
    pub(super) weight: &'a [f32],
    pub(super) bias: Option<&'a [f32]>,
    pub(super) out: MatrixMut<'o>,
    pub(super) add: bool,
    /// Memory for a panel. It is empty if there are few channels.
    pub(super) room: &'a mut [f32],
}

impl WithSimd for Sum<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        if !self.room.is_empty() {
            return self.panels(simd);
        }
        // Sums, a row of vectors and a weight. They leave one of 16 registers: with all of them in use, compilers keep a sum in memory.
        let next = if S::REGISTER_COUNT >= 32 {
            let next = self.channels::<S, 8, 3>(simd, 0);
            self.channels::<S, 4, 3>(simd, next)
        } else {
            self.channels::<S, 6, 2>(simd, 0)
        };
        let next = self.channels::<S, 2, 4>(simd, next);
        self.channels::<S, 1, 4>(simd, next);
    }
}

impl Sum<'_, '_> {
    /// Computes all channels by products with panels.
    #[inline(always)]
    fn panels<S: Simd>(&mut self, simd: S) {
        let (width, depth, positions) = (packed::VECTORS * S::F32_LANES, self.of.depth(), self.out.width());
        let weight = Matrix::new(self.weight, self.out.height(), depth, depth);
        let room = std::mem::take(&mut self.room);
        let start = room.as_ptr().align_offset(size_of::<f32>() * LINE).min(LINE);
        if let Some(bias) = self.bias {
            for (channel, bias) in bias.iter().enumerate() {
                let out = self.out.row(channel);
                match self.add {
                    true => out.iter_mut().for_each(|out| *out += bias),
                    false => out.fill(*bias),
                }
            }
        }
        let add = self.add || self.bias.is_some();
        let block = block_of_terms(depth);
        for terms in (0..depth).step_by(block).map(|start| start..depth.min(start + block)) {
            for at in (0..positions).step_by(width) {
                let panel = &mut room[start..][..terms.len() * width];
                for v in 0..packed::VECTORS {
                    let rest = at + v * S::F32_LANES..positions;
                    self.copy_vectors(simd, rest, terms.clone(), (v, &mut *panel));
                }
                let columns = at..positions.min(at + width);
                let panel = Panel::new(panel, terms.len());
                let add = add || terms.start > 0;
                panel.product(self.out.columns(columns), weight.columns(terms.clone()), add).with_simd(simd);
            }
        }
    }

    /// Copies what the first positions read for some terms to vector `v` of each row of a panel. Lanes after the last position are any floats of the
    /// frame, or 0.
    #[inline(always)]
    fn copy_vectors<S: Simd>(
        &self,
        simd: S,
        positions: Range<usize>,
        terms: Range<usize>,
        (v, panel): (usize, &mut [f32]),
    ) {
        let (pitch, across, lanes) = (self.of.pitch, self.of.axes[1].positions, S::F32_LANES);
        // Rows of positions end inside a vector. Each piece is a load of a whole vector, of which some lanes count.
        let mut pieces = [(0, simd.mask_between_m32s(0, 0).mask()); LANES];
        let (mut count, mut lane) = (0, 0);
        while lane < lanes && positions.start + lane < positions.end {
            let (row, x) = ((positions.start + lane) / across, (positions.start + lane) % across);
            let end = lanes.min(lane + across - x);
            pieces[count] = (row * pitch + x - lane, simd.mask_between_m32s(lane as u32, end as u32).mask());
            (count, lane) = (count + 1, end);
        }
        let to = S::as_mut_simd_f32s(panel).0.as_chunks_mut::<{ packed::VECTORS }>().0;
        let rows = to.iter_mut().zip(&self.of.offsets[terms]);
        match &pieces[..count] {
            [] => {
                for (to, _) in rows {
                    to[v] = simd.splat_f32s(0.0);
                }
            }
            [(start, _)] => {
                for (to, &offset) in rows {
                    to[v] = self.vector::<S>(offset, *start);
                }
            }
            [(start, _), (next, mask)] => {
                for (to, &offset) in rows {
                    let (before, after) = (self.vector::<S>(offset, *start), self.vector::<S>(offset, *next));
                    to[v] = simd.select_f32s(*mask, after, before);
                }
            }
            [(start, _), more @ ..] => {
                for (to, &offset) in rows {
                    to[v] = self.vector::<S>(offset, *start);
                    for (start, mask) in more {
                        to[v] = simd.select_f32s(*mask, self.vector::<S>(offset, *start), to[v]);
                    }
                }
            }
        }
    }

    /// Returns the floats of the frame after an offset and a start.
    #[inline(always)]
    fn vector<S: Simd>(&self, offset: u32, start: usize) -> S::f32s {
        S::as_simd_f32s(&self.frame[offset as usize + start..][..S::F32_LANES]).0[0]
    }

    /// Computes `R` position channels from `first` on, as long as there are so many, with `V` vectors at once. Returns the next channel.
    ///
    /// All positions use a block of terms before the next block: its weights stay in the second cache, and what a run of positions reads of the
    /// frame in the first cache, for all channels.
    #[inline(always)]
    fn channels<S: Simd, const R: usize, const V: usize>(&mut self, simd: S, first: usize) -> usize {
        let end = first + (self.out.height() - first) / R * R;
        if first == end {
            return end;
        }
        let (pitch, across, depth) = (self.of.pitch, self.of.axes[1].positions, self.of.depth());
        let length = (self.out.width() / across - 1) * pitch + across;
        let block = block_of_terms(depth);
        for terms in (0..depth).step_by(block).map(|start| start..depth.min(start + block)) {
            let mut at = 0;
            while at < length {
                let vectors = match (length - at).div_ceil(S::F32_LANES) {
                    rest if rest >= V => V,
                    1 => 1,
                    _ => 2,
                };
                let run = at..length.min(at + vectors * S::F32_LANES);
                for channel in (first..end).step_by(R) {
                    match vectors {
                        1 => self.tile::<S, R, 1>(simd, channel, run.clone(), terms.clone()),
                        2 => self.tile::<S, R, 2>(simd, channel, run.clone(), terms.clone()),
                        _ => self.tile::<S, R, V>(simd, channel, run.clone(), terms.clone()),
                    }
                }
                at = run.end;
            }
        }
        end
    }

    /// Adds `terms` of `R` channels from `first` on at a run of positions, of `V` vectors.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize>(
        &mut self,
        simd: S,
        first: usize,
        run: Range<usize>,
        terms: Range<usize>,
    ) {
        let depth = self.of.depth();
        let weights: [&[f32]; R] = std::array::from_fn(|r| &self.weight[(first + r) * depth..][terms.clone()]);
        let sums = weighted_sums::<S, R, V>(simd, self.frame, &self.of.offsets[terms.clone()], weights, run.start);
        let (add, bias) = (self.add || terms.start > 0, self.bias.filter(|_| terms.start == 0));
        let bias: [f32; R] = std::array::from_fn(|r| bias.map_or(0.0, |bias| bias[first + r]));
        let (pitch, across) = (self.of.pitch, self.of.axes[1].positions);
        let (row, x) = (run.start / pitch, run.start % pitch);
        if x + V * S::F32_LANES <= across {
            let place = row * across + x;
            for ((channel, sums), bias) in (first..).zip(sums).zip(bias) {
                let out = &mut self.out.row(channel)[place..][..V * S::F32_LANES];
                for (out, sum) in S::as_mut_simd_f32s(out).0.iter_mut().zip(sums) {
                    let sum = simd.add_f32s(sum, simd.splat_f32s(bias));
                    *out = if add { simd.add_f32s(*out, sum) } else { sum };
                }
            }
            return;
        }
        let mut floats = [[0.0; VECTORS * LANES]; R];
        for (floats, sums) in floats.iter_mut().zip(&sums) {
            let (to, _) = S::as_mut_simd_f32s(floats);
            to[..V].copy_from_slice(sums);
        }
        self.store((first, &bias), run, &floats, add);
    }

    /// Stores the sums of some channels at a run of positions, without those between two rows.
    #[inline(always)]
    fn store(&mut self, (first, bias): (usize, &[f32]), run: Range<usize>, sums: &[[f32; VECTORS * LANES]], add: bool) {
        let (pitch, across) = (self.of.pitch, self.of.axes[1].positions);
        let mut at = run.start;
        while at < run.end {
            let (row, x) = (at / pitch, at % pitch);
            if x >= across {
                at = (row + 1) * pitch;
                continue;
            }
            let count = (across - x).min(run.end - at);
            for ((channel, sums), bias) in (first..).zip(sums).zip(bias) {
                let sums = &sums[at - run.start..][..count];
                let out = &mut self.out.row(channel)[row * across + x..][..count];
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
fn weighted_sums<S: Simd, const R: usize, const V: usize>(
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
