//! Products on one thread, with the micro kernels of `gemm-f32`.
//!
//! That crate's own driver allocates memory for the packed factors in each call, and packs a factor again for each block of the product. This
//! driver packs into memory that each thread keeps, or takes a factor that is already packed.
//!
//! A micro kernel multiplies a panel of `height` rows of the left factor with a tile of at most `width` columns of the right one. In a packed panel,
//! the elements of one term of the sums are contiguous: `left[panel, term, height]` and `right[panel, term, width]`. The right factor is read in
//! place if the terms of a column are contiguous.
//!
//! A sum has blocks of terms, which depend on their number only. So the bits of a product by micro kernels depend neither on the number of its rows
//! and columns nor on how they are divided among threads.

use super::pack::pack;
use super::{Matrix, MatrixMut, Method, Out, TERMS, block_of_terms, library};
use gemm_common::microkernel::MicroKernelFn;
use gemm_f32::microkernel;
use std::cell::Cell;
use std::sync::OnceLock;

/// The micro kernels of an instruction set.
struct Kernels {
    /// The numbers of a vector.
    lanes: usize,
    /// Rows of a panel of the left factor, a multiple of `lanes`.
    height: usize,
    /// Columns of a panel of the right factor.
    width: usize,
    /// The kernel for `v` vectors of rows and `n` columns, at `(v - 1) * width + n - 1`.
    table: &'static [MicroKernelFn<f32>],
}

/// Returns the kernels in the crate's module `$set`, whose vectors have `$lanes` numbers.
macro_rules! kernels {
    ($set:ident, $lanes:literal) => {{
        use microkernel::$set::f32::{MR_DIV_N, NR, UKR};
        const TABLE: &[MicroKernelFn<f32>] = UKR.as_flattened();
        Kernels { lanes: $lanes, height: $lanes * MR_DIV_N, width: NR, table: TABLE }
    }};
}

/// Returns the kernels that `gemm-f32` chooses on this machine.
fn kernels() -> &'static Kernels {
    static KERNELS: OnceLock<Kernels> = OnceLock::new();
    KERNELS.get_or_init(|| {
        if is_x86_feature_detected!("avx512f") {
            kernels!(avx512f, 16)
        } else if is_x86_feature_detected!("fma") {
            kernels!(fma, 8)
        } else {
            kernels!(scalar, 1)
        }
    })
}

/// A cache line, the unit of packed memory.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Line([f32; 32]);

/// Calls `f` with at least `length` floats of memory for packed factors, which this thread keeps. They are not cleared.
///
/// Nothing that runs in `f` packs factors: a product waits for no other task.
fn with_packed<R>(length: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    thread_local!(static PACKED: Cell<Vec<Line>> = const { Cell::new(Vec::new()) });
    PACKED.with(|cell| {
        let mut lines = cell.take();
        let count = length.div_ceil(32);
        if lines.len() < count {
            lines.resize(count, Line([0.0; 32]));
        }
        let floats = lines.as_mut_ptr().cast::<f32>();
        // SAFETY: a line is 32 floats without padding, and `lines` is borrowed until `f` returns.
        let result = f(unsafe { std::slice::from_raw_parts_mut(floats, lines.len() * 32) });
        cell.set(lines);
        result
    })
}

/// The most floats of a left factor's panels that are packed at a time. They fit a common second cache.
const PANELS: usize = 1 << 17;

/// Columns of the right factor that are multiplied with all panels at a time.
const COLUMNS: usize = 192;

/// A number of floats, 4 KiB, at whose multiples all elements share a set of the first cache.
const CROWDED: usize = 1024;

/// The most elements that the library computes as dot products.
const DOTS: usize = 256;

/// Returns the rows of a panel of the left factor.
pub(crate) fn height() -> usize {
    kernels().height
}

/// Returns the numbers of a vector.
pub(crate) fn lanes() -> usize {
    kernels().lanes
}

/// Returns the method for a product.
pub(super) fn method(left: Matrix<'_>, right: Matrix<'_>, out: Out) -> Method {
    let (rows, columns, depth) = (left.rows, right.columns, left.columns);
    let lanes = kernels().lanes;
    let is_dense = left.column_stride == 1 && right.row_stride == 1;
    let by_left = columns <= 1 && ((left.row_stride == 1 && out.row_stride == 1) || is_dense);
    let by_right = rows <= 1 && ((right.column_stride == 1 && out.column_stride == 1) || is_dense);
    let has_dots = lanes > 1 && is_dense;
    // The library allocates nothing for vectors, for one or two terms, and for few dot products.
    if rows == 0 || columns == 0 || depth <= 2 || by_left || by_right || (has_dots && rows * columns <= DOTS) {
        return Method::Library;
    }
    // Packing a row takes as long as it is used for two vectors' numbers of columns. Sums over the numbers of a vector take as long as 64 terms.
    let is_few = columns <= 2 * lanes && columns.saturating_mul(64) <= depth.saturating_mul(lanes);
    if has_dots && is_few { Method::Dots(DOTS / columns) } else { Method::Panels }
}

/// Computes `out = scale * left * right`, or adds to it.
///
/// # Safety
/// `out` has `left.rows` x `right.columns` elements inside one allocation, which nothing else reads or writes meanwhile.
pub(super) unsafe fn multiply(
    method: Method,
    out: Out,
    left: Matrix<'_>,
    right: Matrix<'_>,
    scale: f32,
    accumulate: bool,
) {
    match method {
        // SAFETY: the caller's.
        Method::Library => unsafe { library(out, left, right, scale, accumulate) },
        Method::Dots(most) => {
            for row in (0..left.rows).step_by(most) {
                let left = left.rows(row..left.rows.min(row + most));
                let out = Out { start: out.start.wrapping_add(row * out.row_stride), ..out };
                // SAFETY: the caller's, for some of the rows.
                unsafe { library(out, left, right, scale, accumulate) };
            }
        }
        // SAFETY: the caller's.
        Method::Panels => unsafe { multiply_panels(out, left, right, scale, accumulate) },
    }
}

/// Computes `out = scale * left * right`, or adds to it, by the micro kernels.
///
/// # Safety
/// As for [`multiply`].
unsafe fn multiply_panels(out: Out, left: Matrix<'_>, right: Matrix<'_>, scale: f32, accumulate: bool) {
    let Kernels { lanes, height, width, .. } = *kernels();
    let (rows, columns, depth) = (left.rows, right.columns, left.columns);
    // Terms so far apart share few sets of a cache, so that each tile of columns would read them from memory.
    let is_crowded = left.column_stride.is_multiple_of(CROWDED) && columns > 2 * width;
    // Few columns do not reuse a packed panel often. Only whole vectors of rows are read in place.
    let is_read = left.row_stride == 1 && columns <= 8 * width && !is_crowded;
    let whole = rows / lanes * lanes;
    if is_read && whole > 0 && whole < rows {
        let rest = Out { start: out.start.wrapping_add(whole * out.row_stride), ..out };
        // SAFETY: the caller's, for the whole vectors of rows and for the others.
        return unsafe {
            multiply_panels(out, left.rows(0..whole), right, scale, accumulate);
            multiply_panels(rest, left.rows(whole..rows), right, scale, accumulate);
        };
    }
    let is_ready = is_read && whole == rows;
    let length = block_of_terms(depth);
    let most = (PANELS / length / height * height).clamp(height, rows.next_multiple_of(height));
    let of_left = if is_ready { 0 } else { most * length };
    let of_right = room_of_right(rows, right);
    with_packed(of_right + of_left, |packed| {
        let (of_right, rest) = packed.split_at_mut(of_right);
        let of_left = &mut rest[..of_left];
        for row in (0..rows).step_by(most) {
            let left = left.rows(row..rows.min(row + most));
            for term in (0..depth).step_by(length) {
                let terms = term..depth.min(term + length);
                let (left, right) = (left.columns(terms.clone()), right.rows(terms));
                let factor = if is_ready {
                    Left::Plain(left)
                } else {
                    pack(left, height, height * length, of_left);
                    Left::Panels { floats: of_left, stride: length, first: 0 }
                };
                let out = Out { start: out.start.wrapping_add(row * out.row_stride), ..out };
                let accumulate = accumulate || term > 0;
                let tiles = Tiles { out, left: factor, rows: left.rows, right, scale, accumulate };
                // SAFETY: the caller's, for some of the rows.
                unsafe { tiles.multiply(of_right) };
            }
        }
    });
}

/// Computes `out = a * b`, or adds to it, with `b` in panels of [`height`] columns.
///
/// # Panics
/// If a factor does not fit.
pub(crate) fn multiply_packed(out: MatrixMut<'_>, a: Matrix<'_>, panels: &[f32], accumulate: bool) {
    assert!(a.rows == out.rows && out.columns.next_multiple_of(height()).checked_mul(a.columns) == Some(panels.len()));
    let (rows, depth) = (out.columns, a.columns);
    if out.rows == 0 || rows == 0 || depth == 0 {
        return;
    }
    // The transposed product, whose columns are contiguous.
    let right = a.t();
    let out = Out { start: out.start, row_stride: 1, column_stride: out.row_stride };
    let (length, block) = (room_of_right(rows, right), block_of_terms(depth));
    with_packed(length, |room| {
        let room = &mut room[..length];
        for term in (0..depth).step_by(block) {
            let right = right.rows(term..depth.min(term + block));
            let left = Left::Panels { floats: panels, stride: depth, first: term };
            let tiles = Tiles { out, left, rows, right, scale: 1.0, accumulate: accumulate || term > 0 };
            // SAFETY: `MatrixMut` has exclusive use of its elements, which are inside its slice, and the sizes fit.
            unsafe { tiles.multiply(room) };
        }
    });
}

/// Returns the floats of the memory for the right factor's panels, whole cache lines. 0 if it is read in place.
fn room_of_right(rows: usize, right: Matrix<'_>) -> usize {
    let Kernels { height, width, .. } = *kernels();
    let packs = right.row_stride != 1 && rows > 2 * height;
    if packs { (COLUMNS.next_multiple_of(width) * TERMS).next_multiple_of(32) } else { 0 }
}

/// The left factor of a product.
#[derive(Clone, Copy)]
enum Left<'a> {
    /// Panels of `stride` terms each. The product's terms are those from `first` on.
    Panels { floats: &'a [f32], stride: usize, first: usize },
    /// A matrix with contiguous columns whose length is a multiple of the vector's.
    Plain(Matrix<'a>),
}

/// A product of one block of terms by the micro kernels.
struct Tiles<'a> {
    out: Out,
    left: Left<'a>,
    rows: usize,
    right: Matrix<'a>,
    scale: f32,
    accumulate: bool,
}

impl Tiles<'_> {
    /// Multiplies each panel of the left factor with each tile of the right one, which is packed into `room` if that has elements.
    ///
    /// # Safety
    /// As for [`multiply`].
    unsafe fn multiply(&self, room: &mut [f32]) {
        let Kernels { height, width, .. } = *kernels();
        let columns = self.right.columns;
        for first in (0..columns).step_by(COLUMNS) {
            let right = self.right.columns(first..columns.min(first + COLUMNS));
            if !room.is_empty() {
                pack(right.t(), width, right.rows * width, room);
            }
            let panels = (!room.is_empty()).then_some(&*room);
            for row in (0..self.rows).step_by(height) {
                // SAFETY: the caller's.
                unsafe { self.multiply_panel(row, first, (right, panels)) };
            }
        }
    }

    /// Multiplies the panel that begins with `row` with some columns, from `first` on, packed or not.
    ///
    /// # Safety
    /// As for [`multiply`].
    unsafe fn multiply_panel(&self, row: usize, first: usize, (right, panels): (Matrix<'_>, Option<&[f32]>)) {
        let Kernels { lanes, height, width, table } = *kernels();
        let Tiles { out, scale, .. } = *self;
        let (terms, down) = (right.rows, height.min(self.rows - row));
        let (left_start, left_stride) = match self.left {
            Left::Panels { floats, stride, first } => {
                (floats[row * stride + first * height..][..terms * height].as_ptr(), height)
            }
            Left::Plain(left) => (left.moved(row, 0), left.column_stride),
        };
        let tiles = right.columns.div_ceil(width);
        // Tiles of few columns have too few sums to hide the latency of an addition, so those in place have about the same number.
        let edge = |tile: usize| match panels {
            Some(_) => right.columns.min(tile * width),
            None => right.columns * tile / tiles,
        };
        for tile in 0..tiles {
            let column = edge(tile);
            let across = edge(tile + 1) - column;
            let (right_start, right_strides) = match panels {
                Some(panels) => (panels[column * terms..][..terms * width].as_ptr(), [width, 1]),
                None => (right.moved(0, column), [right.row_stride, right.column_stride]),
            };
            let start = out.start.wrapping_add(row * out.row_stride + (first + column) * out.column_stride);
            let kernel = table[(down.div_ceil(lanes) - 1) * width + across - 1];
            // SAFETY: panels have whole vectors of `height` rows and `width` columns for each term, as sliced above. Factors in place have the
            // caller's sizes, which `Matrix` keeps inside its slice. `kernels` found the instructions on this machine.
            unsafe {
                kernel(
                    down,
                    across,
                    terms,
                    start,
                    left_start,
                    right_start,
                    out.column_stride as isize,
                    out.row_stride as isize,
                    left_stride as isize,
                    right_strides[0] as isize,
                    right_strides[1] as isize,
                    1.0,
                    scale,
                    u8::from(self.accumulate),
                    false,
                    false,
                    false,
                    std::ptr::null(),
                );
            }
        }
    }
}

/// Adds `right * panel` to `out`, with one packed panel whose first `columns` columns count. Rows of `out` have [`height`] floats, and are `stride`
/// floats apart.
///
/// # Panics
/// If a factor does not fit.
pub(crate) fn add_panel(out: &mut [f32], stride: usize, right: Matrix<'_>, panel: &[f32], columns: usize) {
    let (rows, terms) = (right.rows, right.columns);
    assert!(panel.len() == terms * height() && (1..=height()).contains(&columns), "a panel of another size");
    assert!(
        rows > 0 && terms > 0 && (rows - 1) * stride + height() <= out.len() && stride >= height(),
        "a short output"
    );
    let out = Out { start: out.as_mut_ptr(), row_stride: 1, column_stride: stride };
    let left = Left::Panels { floats: panel, stride: terms, first: 0 };
    let tiles = Tiles { out, left, rows: columns, right: right.t(), scale: 1.0, accumulate: true };
    // SAFETY: `out` is borrowed exclusively, and has `columns` floats in each row, as checked above.
    unsafe { tiles.multiply(&mut []) };
}
