//! Matrices over slices, and their products.
//!
//! The constructors check that every element lies inside the slice; splitting keeps that, so that products are safe to
//! call. Products run on one thread; [`product_parallel`] cuts its output into blocks of fixed size.

use crate::parallel::GRAIN;
use gemm_common::Parallelism;
#[cfg(not(miri))]
use gemm_f32::gemm::f32::get_gemm_fn;
#[cfg(miri)]
use interpreted::get_gemm_fn;
use std::marker::PhantomData;
use std::ops::Range;

/// The product for Miri, which knows nothing of the instructions by which the library finds its kernels: each element is touched that the
/// library touches.
#[cfg(miri)]
mod interpreted {
    use gemm_common::Parallelism;

    // SAFETY: whoever calls one keeps what `multiply` asks for.
    type Gemm = unsafe fn(
        usize,
        usize,
        usize,
        *mut f32,
        isize,
        isize,
        bool,
        *const f32,
        isize,
        isize,
        *const f32,
        isize,
        isize,
        f32,
        f32,
        bool,
        bool,
        bool,
        Parallelism,
    );

    pub(super) fn get_gemm_fn() -> Gemm {
        multiply
    }

    /// `out = alpha * out + beta * left * right`, without the first term unless `reads`.
    ///
    /// # Safety
    /// SAFETY: each element that the strides lead to is inside of its allocation; `out` is not read or written elsewhere meanwhile.
    #[allow(clippy::too_many_arguments)]
    unsafe fn multiply(
        rows: usize,
        columns: usize,
        depth: usize,
        out: *mut f32,
        out_column: isize,
        out_row: isize,
        reads: bool,
        left: *const f32,
        left_column: isize,
        left_row: isize,
        right: *const f32,
        right_column: isize,
        right_row: isize,
        alpha: f32,
        beta: f32,
        _: bool,
        _: bool,
        _: bool,
        _: Parallelism,
    ) {
        let place = |row: usize, row_stride: isize, column: usize, column_stride: isize| {
            row as isize * row_stride + column as isize * column_stride
        };
        for row in 0..rows {
            for column in 0..columns {
                let product = |k| {
                    // SAFETY: the caller's pointers lead to as many rows and columns.
                    let (a, b) = unsafe {
                        (
                            left.offset(place(row, left_row, k, left_column)),
                            right.offset(place(k, right_row, column, right_column)),
                        )
                    };
                    // SAFETY: as above.
                    unsafe { *a * *b }
                };
                let sum: f32 = (0..depth).map(product).sum();
                // SAFETY: as above.
                let element = unsafe { &mut *out.offset(place(row, out_row, column, out_column)) };
                *element = if reads { alpha * *element + beta * sum } else { beta * sum };
            }
        }
    }
}

/// A matrix that is read.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    start: *const f32,
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
    data: PhantomData<&'a [f32]>,
}

// SAFETY: it stands for a `&[f32]`, which may be sent.
unsafe impl Send for Matrix<'_> {}
// SAFETY: it stands for a `&[f32]`, which may be shared.
unsafe impl Sync for Matrix<'_> {}

/// Elements that a row-major matrix spans.
fn span(rows: usize, columns: usize, row_stride: usize) -> usize {
    if rows == 0 || columns == 0 { 0 } else { (rows - 1) * row_stride + columns }
}

impl<'a> Matrix<'a> {
    /// Rows of `columns` elements, `row_stride` apart.
    pub(crate) fn new(data: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Matrix<'a> {
        assert!(span(rows, columns, row_stride) <= data.len(), "a matrix beyond its data");
        Matrix { start: data.as_ptr(), rows, columns, row_stride, column_stride: 1, data: PhantomData }
    }

    /// The transposed matrix.
    pub(crate) fn t(self) -> Matrix<'a> {
        Matrix {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    fn moved(self, row: usize, column: usize) -> *const f32 {
        self.start.wrapping_add(row * self.row_stride + column * self.column_stride)
    }

    /// Some of its rows.
    pub(crate) fn rows(self, range: Range<usize>) -> Matrix<'a> {
        assert!(range.start <= range.end && range.end <= self.rows);
        Matrix { start: self.moved(range.start, 0), rows: range.len(), ..self }
    }

    /// One row of a row-major matrix.
    pub(crate) fn row(self, row: usize) -> &'a [f32] {
        assert!(row < self.rows && self.column_stride == 1);
        // SAFETY: `new` checked that every row lies inside the slice that the matrix borrows for `'a`.
        unsafe { std::slice::from_raw_parts(self.moved(row, 0), self.columns) }
    }

    /// Some of its columns.
    pub(crate) fn columns(self, range: Range<usize>) -> Matrix<'a> {
        assert!(range.start <= range.end && range.end <= self.columns);
        Matrix { start: self.moved(0, range.start), columns: range.len(), ..self }
    }
}

/// A matrix that is written; row by row in memory.
pub(crate) struct MatrixMut<'a> {
    start: *mut f32,
    rows: usize,
    columns: usize,
    row_stride: usize,
    data: PhantomData<&'a mut [f32]>,
}

// SAFETY: it stands for the exclusive use of its elements, which may be handed to another thread.
unsafe impl Send for MatrixMut<'_> {}

impl<'a> MatrixMut<'a> {
    /// Rows of `columns` elements, `row_stride` apart.
    pub(crate) fn new(data: &'a mut [f32], rows: usize, columns: usize, row_stride: usize) -> MatrixMut<'a> {
        assert!(span(rows, columns, row_stride) <= data.len(), "a matrix beyond its data");
        assert!(columns <= row_stride || rows <= 1, "rows that overlap");
        MatrixMut { start: data.as_mut_ptr(), rows, columns, row_stride, data: PhantomData }
    }

    /// The first `at` rows and the rest.
    pub(crate) fn split_rows(self, at: usize) -> (MatrixMut<'a>, MatrixMut<'a>) {
        assert!(at <= self.rows);
        let rest = MatrixMut { start: self.start.wrapping_add(at * self.row_stride), rows: self.rows - at, ..self };
        (MatrixMut { rows: at, ..self }, rest)
    }

    /// The first `at` columns and the rest.
    pub(crate) fn split_columns(self, at: usize) -> (MatrixMut<'a>, MatrixMut<'a>) {
        assert!(at <= self.columns);
        let rest = MatrixMut { start: self.start.wrapping_add(at), columns: self.columns - at, ..self };
        (MatrixMut { columns: at, ..self }, rest)
    }

    /// Rows `range`, for as long as the borrow lasts.
    pub(crate) fn rows(&mut self, range: Range<usize>) -> MatrixMut<'_> {
        assert!(range.start <= range.end && range.end <= self.rows);
        let start = self.start.wrapping_add(range.start * self.row_stride);
        MatrixMut { start, rows: range.len(), columns: self.columns, row_stride: self.row_stride, data: PhantomData }
    }

    /// Columns `range`, for as long as the borrow lasts.
    pub(crate) fn columns(&mut self, range: Range<usize>) -> MatrixMut<'_> {
        assert!(range.start <= range.end && range.end <= self.columns);
        let start = self.start.wrapping_add(range.start);
        MatrixMut { start, rows: self.rows, columns: range.len(), row_stride: self.row_stride, data: PhantomData }
    }

    /// One row.
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows);
        let start = self.start.wrapping_add(row * self.row_stride);
        // SAFETY: `new` checked that every row lies inside the slice this matrix has exclusive use of, and splitting hands
        // out disjoint elements.
        unsafe { std::slice::from_raw_parts_mut(start, self.columns) }
    }

    /// How many rows there are.
    pub(crate) fn height(&self) -> usize {
        self.rows
    }

    /// How many columns there are.
    pub(crate) fn width(&self) -> usize {
        self.columns
    }
}

/// `out = scale * a * b`, or `out += scale * a * b`.
pub(crate) fn product(out: MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, scale: f32, accumulate: bool) {
    assert!(a.rows == out.rows && b.columns == out.columns && a.columns == b.rows, "factors that do not fit");
    // The kernels write columns: where rows are what lies together, they compute the transposed product.
    let transposed = out.row_stride > 1;
    let (left, right) = if transposed { (b.t(), a.t()) } else { (a, b) };
    let (row_stride, column_stride) = if transposed { (1, out.row_stride) } else { (out.row_stride, 1) };
    // SAFETY: `new` and the splits checked that every element of the three matrices lies inside its slice; `out` has
    // exclusive use of its elements, so it overlaps neither factor.
    unsafe {
        get_gemm_fn()(
            left.rows,
            right.columns,
            left.columns,
            out.start,
            column_stride as isize,
            row_stride as isize,
            accumulate,
            left.start,
            left.column_stride as isize,
            left.row_stride as isize,
            right.start,
            right.column_stride as isize,
            right.row_stride as isize,
            1.0,
            scale,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Rows and columns that [`transpose`] keeps in registers.
const TILE: usize = 16;

/// `out = from^T`, on all threads.
pub(crate) fn transpose(mut out: MatrixMut<'_>, from: Matrix<'_>) {
    assert!(out.rows == from.columns && out.columns == from.rows, "a matrix of another shape");
    if out.rows * out.columns > GRAIN && out.rows.max(out.columns) > TILE {
        let ((first, rest), (left, right)) = if out.rows >= out.columns {
            let at = (out.rows / 2).next_multiple_of(TILE);
            let sources = (from.columns(0..at), from.columns(at..from.columns));
            (out.split_rows(at), sources)
        } else {
            let at = (out.columns / 2).next_multiple_of(TILE);
            let sources = (from.rows(0..at), from.rows(at..from.rows));
            (out.split_columns(at), sources)
        };
        rayon::join(|| transpose(first, left), || transpose(rest, right));
        return;
    }
    for row in (0..out.rows).step_by(TILE) {
        let rows = row..out.rows.min(row + TILE);
        for column in (0..out.columns).step_by(TILE) {
            let columns = column..out.columns.min(column + TILE);
            let mut tile = [[0.0; TILE]; TILE];
            for (tile, column) in tile.iter_mut().zip(columns.clone()) {
                tile[..rows.len()].copy_from_slice(&from.row(column)[rows.clone()]);
            }
            for (i, row) in rows.clone().enumerate() {
                let out = &mut out.row(row)[columns.clone()];
                out.iter_mut().zip(&tile).for_each(|(out, tile)| *out = tile[i]);
            }
        }
    }
}

/// Rows and columns of the largest block that one task of [`product_parallel`] computes.
const BLOCK: [usize; 2] = [256, 256];

/// Multiplications below which a product is not split.
const SMALL: usize = 1 << 18;

/// `out (+)= a * b` on all threads.
pub(crate) fn product_parallel(out: MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, accumulate: bool) {
    let work = out.rows.saturating_mul(out.columns).saturating_mul(a.columns);
    let (tall, wide) = (out.rows > BLOCK[0], out.columns > BLOCK[1]);
    if work <= SMALL || !(tall || wide) {
        return product(out, a, b, 1.0, accumulate);
    }
    if tall && out.rows >= out.columns {
        let at = out.rows.div_ceil(BLOCK[0]) / 2 * BLOCK[0];
        let (top, bottom) = (a.rows(0..at), a.rows(at..a.rows));
        let (left, right) = out.split_rows(at);
        rayon::join(|| product_parallel(left, top, b, accumulate), || product_parallel(right, bottom, b, accumulate));
    } else {
        let at = out.columns.div_ceil(BLOCK[1]) / 2 * BLOCK[1];
        let (first, rest) = (b.columns(0..at), b.columns(at..b.columns));
        let (left, right) = out.split_columns(at);
        rayon::join(|| product_parallel(left, a, first, accumulate), || product_parallel(right, a, rest, accumulate));
    }
}
