//! Matrices over slices, and their products.
//!
//! The constructors check that each element is inside the slice, and splitting preserves that, so products are safe to call. Products run on
//! one thread. [`product_parallel`] divides its output among threads, so that its bits do not depend on their number.

use crate::parallel::GRAIN;
use gemm_common::Parallelism;
#[cfg(not(miri))]
use gemm_f32::gemm::f32::get_gemm_fn;
#[cfg(miri)]
use interpreted::get_gemm_fn;
use std::marker::PhantomData;
use std::ops::Range;

pub(crate) mod pack;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod panels;

/// Products on other processors: the library's driver runs all of them, and allocates memory for packed factors.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod panels {
    use super::{Matrix, Method, Out, library};

    /// Returns the columns of the second factor that are packed together.
    pub(super) fn height() -> usize {
        1
    }

    /// Returns the method for a product.
    pub(super) fn method(_: Matrix<'_>, _: Matrix<'_>, _: Out) -> Method {
        Method::Library
    }

    /// Computes `out = scale * left * right`, or adds to it.
    ///
    /// # Safety
    /// `out` has `left.rows` x `right.columns` elements inside one allocation, which nothing else reads or writes meanwhile.
    pub(super) unsafe fn multiply(
        _: Method,
        out: Out,
        left: Matrix<'_>,
        right: Matrix<'_>,
        scale: f32,
        accumulate: bool,
    ) {
        // SAFETY: the caller's.
        unsafe { library(out, left, right, scale, accumulate) }
    }
}

/// The product under Miri. Miri does not support the instructions by which the library selects its kernels. This product touches exactly the
/// elements that the library touches.
#[cfg(miri)]
mod interpreted {
    use gemm_common::Parallelism;

    // SAFETY: the caller meets the requirements of `multiply`.
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

    /// Computes `out = alpha * out + beta * left * right`, without the first term unless `reads`.
    ///
    /// # Safety
    /// SAFETY: each element that the strides lead to is inside its allocation, and nothing else reads or writes `out` meanwhile.
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
                    // SAFETY: the caller's pointers have these numbers of rows and columns.
                    let (a, b) = unsafe {
                        (
                            left.offset(place(row, left_row, k, left_column)),
                            right.offset(place(k, right_row, column, right_column)),
                        )
                    };
                    // SAFETY: the pointers above are inside their allocations.
                    unsafe { *a * *b }
                };
                let sum: f32 = (0..depth).map(product).sum();
                // SAFETY: as for `left` and `right`.
                let element = unsafe { &mut *out.offset(place(row, out_row, column, out_column)) };
                *element = if reads { alpha * *element + beta * sum } else { beta * sum };
            }
        }
    }
}

/// A matrix for reading.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    start: *const f32,
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
    data: PhantomData<&'a [f32]>,
}

// SAFETY: it represents a `&[f32]`, which may be sent.
unsafe impl Send for Matrix<'_> {}
// SAFETY: it represents a `&[f32]`, which may be shared.
unsafe impl Sync for Matrix<'_> {}

/// Returns the elements that a row-major matrix spans.
fn span(rows: usize, columns: usize, row_stride: usize) -> usize {
    if rows == 0 || columns == 0 { 0 } else { (rows - 1) * row_stride + columns }
}

impl<'a> Matrix<'a> {
    /// Returns a matrix of rows with `columns` elements, whose starts are `row_stride` elements apart.
    pub(crate) fn new(data: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Matrix<'a> {
        assert!(span(rows, columns, row_stride) <= data.len(), "a matrix beyond its data");
        Matrix { start: data.as_ptr(), rows, columns, row_stride, column_stride: 1, data: PhantomData }
    }

    /// Returns the transposed matrix.
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

    /// Returns some of the rows.
    pub(crate) fn rows(self, range: Range<usize>) -> Matrix<'a> {
        assert!(range.start <= range.end && range.end <= self.rows);
        Matrix { start: self.moved(range.start, 0), rows: range.len(), ..self }
    }

    /// Returns one row of a row-major matrix.
    pub(crate) fn row(self, row: usize) -> &'a [f32] {
        assert!(row < self.rows && self.column_stride == 1);
        // SAFETY: `new` checked that each row is inside the slice that the matrix borrows for `'a`.
        unsafe { std::slice::from_raw_parts(self.moved(row, 0), self.columns) }
    }

    /// Returns the number of rows.
    pub(crate) fn height(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub(crate) fn width(&self) -> usize {
        self.columns
    }

    /// Returns some of the columns.
    pub(crate) fn columns(self, range: Range<usize>) -> Matrix<'a> {
        assert!(range.start <= range.end && range.end <= self.columns);
        Matrix { start: self.moved(0, range.start), columns: range.len(), ..self }
    }
}

/// A matrix for writing, row-major in memory.
pub(crate) struct MatrixMut<'a> {
    start: *mut f32,
    rows: usize,
    columns: usize,
    row_stride: usize,
    data: PhantomData<&'a mut [f32]>,
}

// SAFETY: it represents the exclusive use of its elements, which may move to another thread.
unsafe impl Send for MatrixMut<'_> {}

impl<'a> MatrixMut<'a> {
    /// Returns a matrix of rows with `columns` elements, whose starts are `row_stride` elements apart.
    pub(crate) fn new(data: &'a mut [f32], rows: usize, columns: usize, row_stride: usize) -> MatrixMut<'a> {
        assert!(span(rows, columns, row_stride) <= data.len(), "a matrix beyond its data");
        assert!(columns <= row_stride || rows <= 1, "rows that overlap");
        MatrixMut { start: data.as_mut_ptr(), rows, columns, row_stride, data: PhantomData }
    }

    /// Returns the first `at` rows, and the remaining rows.
    pub(crate) fn split_rows(self, at: usize) -> (MatrixMut<'a>, MatrixMut<'a>) {
        assert!(at <= self.rows);
        let rest = MatrixMut { start: self.start.wrapping_add(at * self.row_stride), rows: self.rows - at, ..self };
        (MatrixMut { rows: at, ..self }, rest)
    }

    /// Returns the first `at` columns, and the remaining columns.
    pub(crate) fn split_columns(self, at: usize) -> (MatrixMut<'a>, MatrixMut<'a>) {
        assert!(at <= self.columns);
        let rest = MatrixMut { start: self.start.wrapping_add(at), columns: self.columns - at, ..self };
        (MatrixMut { columns: at, ..self }, rest)
    }

    /// Returns the rows `range`, for as long as the borrow lasts.
    pub(crate) fn rows(&mut self, range: Range<usize>) -> MatrixMut<'_> {
        assert!(range.start <= range.end && range.end <= self.rows);
        let start = self.start.wrapping_add(range.start * self.row_stride);
        MatrixMut { start, rows: range.len(), columns: self.columns, row_stride: self.row_stride, data: PhantomData }
    }

    /// Returns the columns `range`, for as long as the borrow lasts.
    pub(crate) fn columns(&mut self, range: Range<usize>) -> MatrixMut<'_> {
        assert!(range.start <= range.end && range.end <= self.columns);
        let start = self.start.wrapping_add(range.start);
        MatrixMut { start, rows: self.rows, columns: range.len(), row_stride: self.row_stride, data: PhantomData }
    }

    /// Returns one row.
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows);
        let start = self.start.wrapping_add(row * self.row_stride);
        // SAFETY: `new` checked that each row is inside the slice of which this matrix has exclusive use, and splitting returns disjoint
        // elements.
        unsafe { std::slice::from_raw_parts_mut(start, self.columns) }
    }

    /// Returns the number of rows.
    pub(crate) fn height(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub(crate) fn width(&self) -> usize {
        self.columns
    }
}

/// A method of computing a product.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(not(all(target_arch = "x86_64", not(miri))), allow(dead_code))]
enum Method {
    /// The library's driver.
    Library,
    /// The library's dot products, of so many rows at a time.
    Dots(usize),
    /// The micro kernels.
    Panels,
}

impl Method {
    /// True if elements have the same bits however the output is divided.
    fn is_divisible(self) -> bool {
        self == Method::Panels
    }
}

/// Computes `out = scale * a * b`, or `out += scale * a * b`.
pub(crate) fn product(out: MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, scale: f32, accumulate: bool) {
    Product { a, b, scale, accumulate }.compute(None, out);
}

/// A product without its output.
#[derive(Clone, Copy)]
struct Product<'a> {
    a: Matrix<'a>,
    b: Matrix<'a>,
    scale: f32,
    accumulate: bool,
}

impl<'a> Product<'a> {
    /// Returns the factors and the output of the transposed product if rows of the output are contiguous, since the kernels write columns.
    fn turned(self, out: &MatrixMut<'_>) -> (Matrix<'a>, Matrix<'a>, Out) {
        let Product { a, b, .. } = self;
        assert!(a.rows == out.rows && b.columns == out.columns && a.columns == b.rows, "factors that do not fit");
        if out.row_stride > 1 {
            return (b.t(), a.t(), Out { start: out.start, row_stride: 1, column_stride: out.row_stride });
        }
        (a, b, Out { start: out.start, row_stride: out.row_stride, column_stride: 1 })
    }

    /// Returns the method for the product.
    fn method(self, out: &MatrixMut<'_>) -> Method {
        let (left, right, out) = self.turned(out);
        panels::method(left, right, out)
    }

    /// Computes the product, by the method of a larger one if it is a part of one.
    fn compute(self, method: Option<Method>, out: MatrixMut<'_>) {
        let (left, right, out) = self.turned(&out);
        let method = method.unwrap_or_else(|| panels::method(left, right, out));
        // SAFETY: `new` and the splits checked that each element of the three matrices is inside its slice. `out` has exclusive use of its
        // elements, so it overlaps neither factor.
        unsafe { panels::multiply(method, out, left, right, self.scale, self.accumulate) }
    }

    /// Returns the part that computes some rows and columns of the output.
    fn part(self, rows: Range<usize>, columns: Range<usize>) -> Product<'a> {
        Product { a: self.a.rows(rows), b: self.b.columns(columns), ..self }
    }
}

/// The output of a product.
#[derive(Clone, Copy)]
struct Out {
    start: *mut f32,
    row_stride: usize,
    column_stride: usize,
}

/// Computes `out = scale * left * right`, or adds to it, by the library's driver.
///
/// # Safety
/// `out` has `left.rows` x `right.columns` elements inside one allocation, which nothing else reads or writes meanwhile.
unsafe fn library(out: Out, left: Matrix<'_>, right: Matrix<'_>, scale: f32, accumulate: bool) {
    // SAFETY: the caller's for `out`. `Matrix` keeps its elements inside its slice.
    unsafe {
        get_gemm_fn()(
            left.rows,
            right.columns,
            left.columns,
            out.start,
            out.column_stride as isize,
            out.row_stride as isize,
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

/// Computes `out = from^T` on all threads.
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

/// The most terms that are summed before the sum is added to the others. What 16 columns read for them fits a first cache of 32 KiB.
pub(crate) const TERMS: usize = 384;

/// Returns the terms of each block of a sum of `depth` terms, which is not 0. The last block may have fewer.
pub(crate) fn block_of_terms(depth: usize) -> usize {
    depth.div_ceil(depth.div_ceil(TERMS))
}

/// The most multiplications of a product that is not divided.
const SMALL: usize = 1 << 18;

/// Rows and columns of the blocks into which an output is divided if its bits depend on the division.
const BLOCK: usize = 256;

/// The fewest rows of a part whose product packs the second factor.
const FEWEST_ROWS: usize = 96;

/// Computes `out (+)= a * b` on all threads.
pub(crate) fn product_parallel(out: MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, accumulate: bool) {
    let whole = Product { a, b, scale: 1.0, accumulate };
    let work = out.rows.saturating_mul(out.columns).saturating_mul(a.columns);
    if work <= SMALL {
        return whole.compute(None, out);
    }
    let method = whole.method(&out);
    let (method, parts) = if method.is_divisible() {
        (Some(method), Parts { most: tasks(work, SMALL), rows: FEWEST_ROWS, columns: panels::height() })
    } else {
        (None, Parts { most: usize::MAX, rows: BLOCK, columns: BLOCK })
    };
    divide(out, parts, [0, 0], &|[row, column], out| {
        whole.part(row..row + out.rows, column..column + out.columns).compute(method, out);
    });
}

/// True if [`product_parallel`] packs `b` as a [packed matrix](crate::packed) is, so that a product with a packed copy has the same bits.
pub(crate) fn is_packed(out: &MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>) -> bool {
    // Otherwise the kernels pack `a`.
    out.row_stride > 1 && Product { a, b, scale: 1.0, accumulate: false }.method(out).is_divisible()
}

/// Returns the number of tasks for all threads, each with at least `least` multiplications of `work`.
pub(crate) fn tasks(work: usize, least: usize) -> usize {
    match rayon::current_num_threads() {
        1 => 1,
        threads => (4 * threads).min(work / least),
    }
}

/// The parts of an output.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    /// The most parts.
    pub(crate) most: usize,
    /// The fewest rows of a part.
    pub(crate) rows: usize,
    /// The columns of a part are a multiple of this number.
    pub(crate) columns: usize,
}

/// Calls `f` with the first row and column of each part, and with the part, on all threads.
pub(crate) fn divide<F>(out: MatrixMut<'_>, parts: Parts, [row, column]: [usize; 2], f: &F)
where
    F: Fn([usize; 2], MatrixMut<'_>) + Sync,
{
    let (rows, columns) = (out.rows / parts.rows.max(1), out.columns / parts.columns.max(1));
    let half = |most| Parts { most, ..parts };
    let [before, after] = [half(parts.most / 2), half(parts.most - parts.most / 2)];
    if parts.most > 1 && columns > 1 {
        // Parts with other columns do not pack the same elements.
        let at = columns / 2 * parts.columns;
        let (first, rest) = out.split_columns(at);
        rayon::join(|| divide(first, before, [row, column], f), || divide(rest, after, [row, column + at], f));
    } else if parts.most > 1 && rows > 1 {
        let at = rows / 2 * parts.rows;
        let (first, rest) = out.split_rows(at);
        rayon::join(|| divide(first, before, [row, column], f), || divide(rest, after, [row + at, column], f));
    } else {
        f([row, column], out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows, columns and terms: vectors, few terms, dot products, packed factors with whole and part panels, several blocks of terms.
    const SIZES: [[usize; 3]; 14] = [
        [1, 9, 40],
        [9, 1, 40],
        [5, 7, 2],
        [5, 7, 40],
        [70, 33, 1],
        [8, 130, 300],
        [130, 8, 300],
        [64, 96, 260],
        [70, 45, 33],
        [33, 131, 70],
        [200, 150, 17],
        [97, 101, 1200],
        [70, 450, 500],
        [250, 200, 800],
    ];

    fn numbers(count: usize, factor: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * factor) % 2039) as f32 / 2039.0 - 0.5).collect()
    }

    #[test]
    fn products_of_all_shapes_agree_with_their_definition() {
        for [rows, columns, depth] in SIZES {
            let (a, b) = (numbers(rows * depth, 607), numbers(depth * columns, 1013));
            let of_a = [Matrix::new(&a, rows, depth, depth), Matrix::new(&a, depth, rows, rows).t()];
            let of_b = [Matrix::new(&b, depth, columns, columns), Matrix::new(&b, columns, depth, depth).t()];
            for (which, add) in (0..4).flat_map(|which| [(which, false), (which, true)]) {
                let (left, right) = (of_a[which % 2], of_b[which / 2]);
                let mut found = vec![0.5; rows * columns];
                product(MatrixMut::new(&mut found, rows, columns, columns), left, right, 2.0, add);
                let at_a = |row: usize, k: usize| if which % 2 == 0 { a[row * depth + k] } else { a[k * rows + row] };
                let at_b = |k: usize, column: usize| match which / 2 {
                    0 => b[k * columns + column],
                    _ => b[column * depth + k],
                };
                for (at, found) in found.iter().enumerate() {
                    let (row, column) = (at / columns, at % columns);
                    let terms = (0..depth).map(|k| f64::from(at_a(row, k)) * f64::from(at_b(k, column)));
                    let expected = 2.0 * terms.sum::<f64>() + if add { 0.5 } else { 0.0 };
                    let error = (f64::from(*found) - expected).abs();
                    assert!(error <= 1e-6 * depth as f64, "{rows}, {columns}, {depth}, {which}, {add}: {error}");
                }
            }
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn any_number_of_threads_computes_the_same_bits() {
        // Products by micro kernels, by dot products, and of a matrix with a vector.
        for [rows, columns, depth] in [[500, 450, 700], [200, 64, 300], [40, 900, 2000], [1, 5000, 300]] {
            let (a, b) = (numbers(rows * depth, 607), numbers(depth * columns, 1013));
            let of_a = [Matrix::new(&a, rows, depth, depth), Matrix::new(&a, depth, rows, rows).t()];
            let of_b = [Matrix::new(&b, depth, columns, columns), Matrix::new(&b, columns, depth, depth).t()];
            for (a, b) in of_a.into_iter().flat_map(|a| of_b.map(|b| (a, b))) {
                let compute = |threads| {
                    let mut out = vec![0.0; rows * columns];
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
                    pool.install(|| product_parallel(MatrixMut::new(&mut out, rows, columns, columns), a, b, false));
                    out
                };
                let expected = compute(1);
                for threads in [2, 3, 5] {
                    let found = compute(threads);
                    let is_equal = expected.iter().zip(&found).all(|(one, other)| one.to_bits() == other.to_bits());
                    assert!(is_equal, "{rows}, {columns}, {depth} on {threads} threads");
                }
            }
        }
    }
}
