//! Products with one matrix many times, as a recurrence needs them: the matrix is copied once, in the order in which products read it.
//!
//! A packed matrix consists of panels of a few columns, row by row. A product keeps a block of its result in registers and goes down a panel once.
//! Each element of the result is one sum over all rows, in order, so that its bits depend on fused multiply-adds, but not on the width of
//! the registers or on the number of threads.

use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::GRAIN;
use crate::simd::dispatch;
use pulp::{Simd, WithSimd, bytemuck};

/// Vectors of a panel's row.
pub(crate) const VECTORS: usize = 2;

/// A packed matrix of `depth` rows.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a> {
    panels: &'a [f32],
    depth: usize,
    columns: usize,
}

/// The instruction set's columns of a panel.
struct PanelWidth;

impl WithSimd for PanelWidth {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        VECTORS * S::F32_LANES
    }
}

impl<'a> Packed<'a> {
    /// Returns the elements of the memory for a packed matrix.
    pub(crate) fn room(depth: usize, columns: usize) -> usize {
        columns.next_multiple_of(dispatch(PanelWidth)).saturating_mul(depth)
    }

    /// Packs a row-major matrix of `depth` rows.
    pub(crate) fn rows(from: &[f32], depth: usize, columns: usize, room: &'a mut [f32]) -> Packed<'a> {
        let width = dispatch(PanelWidth);
        for (index, panel) in room.chunks_exact_mut((width * depth).max(1)).enumerate() {
            let first = index * width;
            let count = width.min(columns - first);
            for (to, from) in panel.chunks_exact_mut(width).zip(from.chunks_exact(columns)) {
                to[..count].copy_from_slice(&from[first..first + count]);
                to[count..].fill(0.0);
            }
        }
        Packed { panels: room, depth, columns }
    }

    /// Packs a matrix whose columns are the rows, of `depth` elements each, of a row-major one.
    pub(crate) fn columns(from: &[f32], depth: usize, columns: usize, room: &'a mut [f32]) -> Packed<'a> {
        let width = dispatch(PanelWidth);
        for (index, panel) in room.chunks_exact_mut((width * depth).max(1)).enumerate() {
            let first = index * width;
            let count = width.min(columns - first);
            for (k, to) in panel.chunks_exact_mut(width).enumerate() {
                let from = from[first * depth + k..].iter().step_by(depth);
                to[..count].iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                to[count..].fill(0.0);
            }
        }
        Packed { panels: room, depth, columns }
    }

    /// Returns one panel of `depth` rows, of which `columns` columns count.
    pub(crate) fn panel(panel: &'a [f32], depth: usize, columns: usize) -> Packed<'a> {
        Packed { panels: panel, depth, columns }
    }

    /// Computes `out (+)= a * self` on this thread, with the vectors of an instruction set for which the matrix was packed.
    #[inline(always)]
    pub(crate) fn multiply_with<S: Simd>(self, simd: S, out: MatrixMut<'_>, a: Matrix<'_>, accumulate: bool) {
        assert!(out.width() == self.columns, "a product of another width");
        Product { packed: self, first: 0, out, a, accumulate }.with_simd(simd);
    }

    /// Computes `out (+)= a * self` for the first `out.height()` rows of `a`, on all threads.
    pub(crate) fn multiply(&self, out: MatrixMut<'_>, a: Matrix<'_>, accumulate: bool) {
        assert!(out.width() == self.columns, "a product of another width");
        self.part(0, out, a, accumulate);
    }

    /// Computes the columns of the panels from `first` on.
    fn part(&self, first: usize, out: MatrixMut<'_>, a: Matrix<'_>, accumulate: bool) {
        let width = dispatch(PanelWidth);
        let panels = out.width().div_ceil(width);
        if panels > 1 && out.height() * out.width() > GRAIN {
            let half = panels / 2;
            let (left, right) = out.split_columns(half * width);
            let run = |first, out| self.part(first, out, a, accumulate);
            rayon::join(|| run(first, left), || run(first + half, right));
            return;
        }
        dispatch(Product { packed: *self, first, out, a, accumulate });
    }
}

/// A product of some panels.
struct Product<'a, 'b> {
    packed: Packed<'a>,
    first: usize,
    out: MatrixMut<'b>,
    a: Matrix<'b>,
    accumulate: bool,
}

impl WithSimd for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let (rows, width) = (self.out.height(), VECTORS * S::F32_LANES);
        for column in (0..self.out.width()).step_by(width) {
            let mut row = 0;
            while row < rows {
                // As many rows as leave a register for each sum, for two vectors of the panel and for an element of `a`.
                row += match rows - row {
                    12.. if S::F32_LANES >= 16 => self.block::<S, 12>(simd, row, column),
                    8.. if S::F32_LANES >= 16 => self.block::<S, 8>(simd, row, column),
                    // The last two rows alone would have too few sums to hide the latency of an addition.
                    8 => self.block::<S, 4>(simd, row, column),
                    6.. => self.block::<S, 6>(simd, row, column),
                    4.. => self.block::<S, 4>(simd, row, column),
                    2.. => self.block::<S, 2>(simd, row, column),
                    _ => self.block::<S, 1>(simd, row, column),
                };
            }
        }
    }
}

impl Product<'_, '_> {
    /// Computes `ROWS` rows of a panel, and returns their number.
    #[inline(always)]
    fn block<S: Simd, const ROWS: usize>(&mut self, simd: S, first: usize, column: usize) -> usize {
        let (width, depth) = (VECTORS * S::F32_LANES, self.packed.depth);
        let panel = &self.packed.panels[(self.first * width + column) * depth..][..width * depth];
        let (panel, _) = S::as_simd_f32s(panel).0.as_chunks::<VECTORS>();
        let a: [&[f32]; ROWS] = std::array::from_fn(|i| &self.a.row(first + i)[..panel.len()]);
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
        for (k, [left, right]) in panel.iter().enumerate() {
            for (sums, a) in sums.iter_mut().zip(a) {
                let a = simd.splat_f32s(a[k]);
                sums[0] = simd.mul_add_e_f32s(a, *left, sums[0]);
                sums[1] = simd.mul_add_e_f32s(a, *right, sums[1]);
            }
        }
        let count = width.min(self.out.width() - column);
        for (i, sums) in sums.iter().enumerate() {
            let out = &mut self.out.row(first + i)[column..column + count];
            // A copy of a part is a call. Whole vectors are moves.
            if let ([left, right], []) = S::as_mut_simd_f32s(out) {
                let [of_left, of_right] = *sums;
                *left = if self.accumulate { simd.add_f32s(*left, of_left) } else { of_left };
                *right = if self.accumulate { simd.add_f32s(*right, of_right) } else { of_right };
                continue;
            }
            let sums: &[f32] = bytemuck::cast_slice(sums);
            if self.accumulate {
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
            } else {
                out.copy_from_slice(&sums[..count]);
            }
        }
        ROWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::product;

    /// Numbers without a pattern, from -0.5 to 0.5.
    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 16_777_216.0 - 0.5
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn products_agree_with_those_that_pack_each_time() {
        for [rows, depth, columns] in [[1, 1, 1], [5, 7, 33], [12, 16, 32], [33, 40, 100], [64, 96, 300], [3, 1, 5]] {
            let (a, b) = (numbers(rows * depth, 1), numbers(depth * columns, 2));
            let a = Matrix::new(&a, rows, depth, depth);
            let mut room = vec![f32::NAN; Packed::room(depth, columns)];
            for accumulate in [false, true] {
                for is_transposed in [false, true] {
                    let (b, packed) = if is_transposed {
                        (Matrix::new(&b, columns, depth, depth).t(), Packed::columns(&b, depth, columns, &mut room))
                    } else {
                        (Matrix::new(&b, depth, columns, columns), Packed::rows(&b, depth, columns, &mut room))
                    };
                    // Rows of the result are apart, and what is between them stays.
                    let stride = columns + 3;
                    let start = numbers(rows * stride, 3);
                    let [mut found, mut expected] = [start.clone(), start];
                    let at = |out| MatrixMut::new(out, rows, columns, stride);
                    packed.multiply(at(&mut found[..]), a, accumulate);
                    product(at(&mut expected[..]), a, b, 1.0, accumulate);
                    for (found, expected) in found.iter().zip(&expected) {
                        assert!((found - expected).abs() < 1e-5, "{rows} {depth} {columns}: {found} {expected}");
                    }
                }
            }
        }
    }
}
