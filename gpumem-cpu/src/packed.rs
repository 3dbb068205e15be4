//! Products with one matrix many times, as a recurrence needs them: the matrix is copied once, in the order in which products read it.
//!
//! A packed matrix consists of panels of some columns, row by row. A product keeps a block of its result in registers and goes down a panel. Each
//! element of the result is a sum over the rows in order, in blocks that depend on their number only, so that its bits depend on fused
//! multiply-adds, but not on the width of the registers or on the number of threads.

use crate::matrix::pack::pack;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::matrix::panels::{height as panel_width, multiply_packed};
use crate::matrix::{Matrix, MatrixMut, Parts, divide, tasks};
use crate::parallel;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use portable::{multiply_packed, panel_width};
use pulp::{Simd, WithSimd, bytemuck};

/// Vectors of a row of a [`Panel`].
pub(crate) const VECTORS: usize = 2;

/// Floats of a cache line, at whose multiples panels begin.
const LINE: usize = 16;

/// The fewest multiplications of a task.
const LEAST: usize = 1 << 20;

/// The fewest rows of a task.
const ROWS: usize = 24;

/// A packed matrix.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a> {
    panels: &'a [f32],
    depth: usize,
    columns: usize,
}

impl<'a> Packed<'a> {
    /// Returns the elements of the memory for a packed matrix of `depth` rows.
    pub(crate) fn room(depth: usize, columns: usize) -> usize {
        Packed::length(depth, columns).saturating_add(LINE)
    }

    fn length(depth: usize, columns: usize) -> usize {
        columns.next_multiple_of(panel_width()).saturating_mul(depth)
    }

    /// Packs a matrix into memory of [`Packed::room`] elements, on all threads.
    pub(crate) fn new(matrix: Matrix<'_>, room: &'a mut [f32]) -> Packed<'a> {
        let (depth, columns, width) = (matrix.height(), matrix.width(), panel_width());
        let panels = Packed::panels(depth, columns, room);
        let each = (depth * width).max(1);
        parallel::pieces(None, panels, each, |panel, _, out| {
            let columns = panel * width..columns.min((panel + 1) * width);
            pack(matrix.columns(columns).t(), width, each, out);
            0.0
        });
        Packed { panels, depth, columns }
    }

    /// Returns the matrix that was packed into this memory before.
    pub(crate) fn kept(depth: usize, columns: usize, room: &'a mut [f32]) -> Packed<'a> {
        Packed { panels: Packed::panels(depth, columns, room), depth, columns }
    }

    /// Returns the memory of the panels.
    fn panels(depth: usize, columns: usize, room: &'a mut [f32]) -> &'a mut [f32] {
        let start = room.as_ptr().align_offset(size_of::<[f32; LINE]>()).min(LINE);
        &mut room[start..][..Packed::length(depth, columns)]
    }

    /// Computes `out (+)= a * self`, on all threads.
    pub(crate) fn multiply(&self, out: MatrixMut<'_>, a: Matrix<'_>, accumulate: bool) {
        assert!(out.width() == self.columns && out.height() == a.height() && a.width() == self.depth, "unfit factors");
        let work = out.height().saturating_mul(out.width()).saturating_mul(self.depth);
        let parts = Parts { most: tasks(work, LEAST), rows: ROWS, columns: panel_width() };
        divide(out, parts, [0, 0], &|[row, column], out| {
            let panels = &self.panels[column * self.depth..][..Packed::length(self.depth, out.width())];
            let a = a.rows(row..row + out.height());
            multiply_packed(out, a, panels, accumulate);
        });
    }
}

/// Products of packed matrices where there are no micro kernels.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod portable {
    use super::{Panel, VECTORS};
    use crate::matrix::{Matrix, MatrixMut};
    use crate::simd::dispatch;
    use pulp::{Simd, WithSimd};

    /// Returns the columns of a panel.
    pub(super) fn panel_width() -> usize {
        struct Width;

        impl WithSimd for Width {
            type Output = usize;

            #[inline(always)]
            fn with_simd<S: Simd>(self, _: S) -> usize {
                VECTORS * S::F32_LANES
            }
        }

        dispatch(Width)
    }

    /// Computes `out = a * b`, or adds to it, with `b` in panels of [`panel_width`] columns.
    pub(super) fn multiply_packed(mut out: MatrixMut<'_>, a: Matrix<'_>, panels: &[f32], accumulate: bool) {
        let (depth, width) = (a.width(), panel_width());
        for first in (0..out.width()).step_by(width) {
            let columns = first..out.width().min(first + width);
            let panel = Panel::new(&panels[first * depth..][..width * depth], depth);
            dispatch(panel.product(out.columns(columns), a, accumulate));
        }
    }
}

/// One panel of a packed matrix, whose columns are those of two vectors.
#[derive(Clone, Copy)]
pub(crate) struct Panel<'a> {
    panel: &'a [f32],
    depth: usize,
}

impl<'a> Panel<'a> {
    /// Returns a panel of `depth` rows.
    pub(crate) fn new(panel: &'a [f32], depth: usize) -> Panel<'a> {
        Panel { panel, depth }
    }

    /// Returns the product `out (+)= a * self` for the first `out.width()` columns, on this thread, with the vectors of an instruction set for which
    /// the panel was packed.
    pub(crate) fn product<'b>(self, out: MatrixMut<'b>, a: Matrix<'b>, accumulate: bool) -> PanelProduct<'a, 'b> {
        PanelProduct { panel: self, out, a, accumulate }
    }
}

/// A product with a panel.
pub(crate) struct PanelProduct<'a, 'b> {
    panel: Panel<'a>,
    out: MatrixMut<'b>,
    a: Matrix<'b>,
    accumulate: bool,
}

impl WithSimd for PanelProduct<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let rows = self.out.height();
        assert!(self.out.width() <= VECTORS * S::F32_LANES, "a product of another width");
        let mut row = 0;
        while row < rows {
            // As many rows as leave a register for each sum, for two vectors of the panel and for an element of `a`.
            row += match rows - row {
                12.. if S::F32_LANES >= 16 => self.block::<S, 12>(simd, row),
                8.. if S::F32_LANES >= 16 => self.block::<S, 8>(simd, row),
                // The last two rows alone would have too few sums to hide the latency of an addition.
                8 => self.block::<S, 4>(simd, row),
                6.. => self.block::<S, 6>(simd, row),
                4.. => self.block::<S, 4>(simd, row),
                2.. => self.block::<S, 2>(simd, row),
                _ => self.block::<S, 1>(simd, row),
            };
        }
    }
}

impl PanelProduct<'_, '_> {
    /// Computes `ROWS` rows, and returns their number.
    #[inline(always)]
    fn block<S: Simd, const ROWS: usize>(&mut self, simd: S, first: usize) -> usize {
        let (width, depth) = (VECTORS * S::F32_LANES, self.panel.depth);
        let (panel, _) = S::as_simd_f32s(&self.panel.panel[..width * depth]).0.as_chunks::<VECTORS>();
        let a: [&[f32]; ROWS] = std::array::from_fn(|i| &self.a.row(first + i)[..panel.len()]);
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
        for (k, [left, right]) in panel.iter().enumerate() {
            for (sums, a) in sums.iter_mut().zip(a) {
                let a = simd.splat_f32s(a[k]);
                sums[0] = simd.mul_add_e_f32s(a, *left, sums[0]);
                sums[1] = simd.mul_add_e_f32s(a, *right, sums[1]);
            }
        }
        let count = self.out.width();
        for (i, sums) in sums.iter().enumerate() {
            let out = self.out.row(first + i);
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
        for [rows, depth, columns] in
            [[1, 1, 1], [5, 7, 33], [12, 16, 32], [33, 40, 100], [64, 96, 300], [3, 1, 5], [70, 900, 90]]
        {
            let (a, b) = (numbers(rows * depth, 1), numbers(depth * columns, 2));
            let a = Matrix::new(&a, rows, depth, depth);
            let mut room = vec![f32::NAN; Packed::room(depth, columns)];
            for accumulate in [false, true] {
                for is_transposed in [false, true] {
                    let b = if is_transposed {
                        Matrix::new(&b, columns, depth, depth).t()
                    } else {
                        Matrix::new(&b, depth, columns, columns)
                    };
                    let packed = Packed::new(b, &mut room);
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
