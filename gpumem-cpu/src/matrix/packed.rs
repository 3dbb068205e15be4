//! Products on one thread, with the micro kernels of `gemm-f32`.
//!
//! That crate's own driver allocates memory for the packed factors in each call. This driver has its blocks and its order of sums, and packs into
//! memory that each thread keeps. It also packs factors, or turns products, in some shapes where the other one does not.
//!
//! A micro kernel multiplies a panel of `height` rows of the left factor with a panel of `width` columns of the right one. In a packed panel, the
//! elements of one term of the sums are contiguous: `left[panel, term, height]` and `right[panel, term, width]`.

use super::{Matrix, Out, library};
use gemm_common::cache::{CACHE_INFO, KernelParams, kernel_params};
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

/// Rows and terms that [`pack_turned`] turns at once.
const SQUARE: usize = 4;

/// Packs the rows of `from` in panels of `height` rows, `stride` floats apart. The missing rows of the last panel are zeros.
fn pack(from: Matrix<'_>, height: usize, stride: usize, out: &mut [f32]) {
    for (panel, out) in out.chunks_mut(stride).take(from.rows.div_ceil(height)).enumerate() {
        let first = panel * height;
        let from = from.rows(first..from.rows.min(first + height));
        let out = &mut out[..height * from.columns];
        if from.row_stride == 1 {
            // Copies of a known length are vector moves instead of calls.
            match (height, from.rows == height) {
                (6, true) => pack_straight::<6>(from, out),
                (16, true) => pack_straight::<16>(from, out),
                (64, true) => pack_straight::<64>(from, out),
                _ => pack_part(from, height, out),
            }
        } else {
            // One stride of a matrix is always 1.
            pack_turned(from, height, out);
        }
    }
}

/// Packs one panel of `HEIGHT` rows, all of which are there, whose elements of a term are contiguous.
fn pack_straight<const HEIGHT: usize>(from: Matrix<'_>, out: &mut [f32]) {
    let turned = from.t();
    for (term, out) in out.as_chunks_mut::<HEIGHT>().0.iter_mut().enumerate() {
        if let Some(rows) = turned.row(term).first_chunk() {
            *out = *rows;
        }
    }
}

/// Packs one panel of rows whose elements of a term are contiguous, some of which may be missing.
fn pack_part(from: Matrix<'_>, height: usize, out: &mut [f32]) {
    let turned = from.t();
    for (term, out) in out.chunks_exact_mut(height).enumerate() {
        let (rows, rest) = out.split_at_mut(from.rows);
        rows.copy_from_slice(turned.row(term));
        rest.fill(0.0);
    }
}

/// Packs one panel of rows whose terms are contiguous, in squares that fit the registers.
fn pack_turned(from: Matrix<'_>, height: usize, out: &mut [f32]) {
    let terms = from.columns;
    for first in (0..height).step_by(SQUARE) {
        let across = SQUARE.min(height - first);
        // Rows that are missing are zeros, and a square's last rows may be those of no panel.
        let row = |row: usize| (first + row < from.rows).then(|| from.row(first + row));
        let rows: [Option<&[f32]>; SQUARE] = std::array::from_fn(row);
        let is_whole = across == SQUARE && rows.iter().all(Option::is_some);
        let rows = rows.map(Option::unwrap_or_default);
        let whole = if is_whole { terms / SQUARE * SQUARE } else { 0 };
        let (squares, rest) = out.split_at_mut(whole * height);
        for (square, out) in squares.chunks_exact_mut(SQUARE * height).enumerate() {
            let terms_of = |row: &[f32]| row[square * SQUARE..].first_chunk().copied().unwrap_or_default();
            let [a, b, c, d]: [[f32; SQUARE]; SQUARE] = rows.map(terms_of);
            for (term, out) in out.chunks_exact_mut(height).enumerate() {
                // An array, since a copy of a slice is a call.
                if let Some(to) = out[first..].first_chunk_mut() {
                    *to = [a[term], b[term], c[term], d[term]];
                }
            }
        }
        for (term, out) in (whole..terms).zip(rest.chunks_exact_mut(height)) {
            for (to, row) in out[first..first + across].iter_mut().zip(rows) {
                *to = row.get(term).copied().unwrap_or_default();
            }
        }
    }
}

/// The blocks of a product, in terms, rows and columns, as `gemm-common` chooses them.
fn blocks(kernels: &Kernels, [rows, columns, depth]: [usize; 3]) -> KernelParams {
    let Kernels { height, width, .. } = *kernels;
    let params = if rows <= 64 && columns <= 64 {
        let kc = depth.min(512);
        let mc = CACHE_INFO[1].cache_bytes / size_of::<f32>() / kc / height * height;
        KernelParams { kc, mc, nc: columns.next_multiple_of(width) }
    } else {
        kernel_params(rows, columns, depth, height, width, size_of::<f32>())
    };
    let nc = if params.nc == 0 { 128 * width } else { params.nc };
    // A small product needs no more memory than its factors, and a block has a panel even where a cache is tiny.
    let mc = params.mc.min(rows.next_multiple_of(height)).max(height);
    KernelParams { nc: nc.min(columns.next_multiple_of(width)), mc, ..params }
}

/// True if `gemm-f32` has a path for such a product that allocates nothing: for vectors, for one or two terms, and for few dot products.
fn is_small(left: Matrix<'_>, right: Matrix<'_>, out: Out) -> bool {
    let (rows, columns, depth) = (left.rows, right.columns, left.columns);
    let (left_dense, right_dense) = (left.column_stride == 1, right.row_stride == 1);
    let dots = kernels().lanes > 1 && left_dense && right_dense && rows * columns <= DOTS;
    let by_left = columns <= 1 && ((left.row_stride == 1 && out.row_stride == 1) || (left_dense && right_dense));
    let by_right = rows <= 1 && ((right.column_stride == 1 && out.column_stride == 1) || (left_dense && right_dense));
    rows == 0 || columns == 0 || depth <= 2 || dots || by_left || by_right
}

/// A number of floats, 4 KiB, at whose multiples all elements share a set of the first cache.
const CROWDED: usize = 1024;

/// The most elements that the library computes as dot products.
const DOTS: usize = 256;

/// Returns the rows that are computed as dot products at once, if both factors' terms are contiguous and few columns reuse a packed row. `None` if
/// packing pays off.
fn rows_of_dots(left: Matrix<'_>, right: Matrix<'_>) -> Option<usize> {
    let lanes = kernels().lanes;
    let is_dense = left.column_stride == 1 && right.row_stride == 1 && lanes > 1;
    // Packing a row takes as long as it is used for four vectors' numbers of columns. Sums over the numbers of a vector take as long as 64 terms.
    let is_few = (1..=4 * lanes).contains(&right.columns)
        && right.columns.saturating_mul(64) <= left.columns.saturating_mul(lanes);
    (is_dense && is_few).then_some(DOTS / right.columns.max(1))
}

/// True if the transposed product is faster, although it writes rows, element by element.
///
/// A left factor whose terms are contiguous is turned while it is packed. As the right factor of the transposed product it is read in place, and
/// the other one is packed. That is less work for a large weight and few rows.
fn is_faster_turned(left: Matrix<'_>, right: Matrix<'_>) -> bool {
    let (rows, columns, depth) = (left.rows, right.columns, left.columns);
    let is_read_in_place = left.column_stride == 1 && left.row_stride != 1;
    // A stored element takes about as long as two packed ones.
    let (packed, turned) = (rows.saturating_mul(depth), columns.saturating_mul(depth.saturating_add(2 * rows)));
    is_read_in_place && columns >= kernels().lanes && turned < packed
}

/// Computes `out = scale * left * right`, or adds to it.
///
/// # Safety
/// `out` has `left.rows` x `right.columns` elements inside one allocation, which nothing else reads or writes meanwhile.
pub(super) unsafe fn multiply(out: Out, left: Matrix<'_>, right: Matrix<'_>, scale: f32, accumulate: bool) {
    if is_small(left, right, out) {
        // SAFETY: the caller's.
        return unsafe { library(out, left, right, scale, accumulate) };
    }
    if let Some(most) = rows_of_dots(left, right) {
        for row in (0..left.rows).step_by(most) {
            let left = left.rows(row..left.rows.min(row + most));
            let out = Out { start: out.start.wrapping_add(row * out.row_stride), ..out };
            // SAFETY: the caller's, for some of the rows.
            unsafe { library(out, left, right, scale, accumulate) };
        }
        return;
    }
    if is_faster_turned(left, right) {
        let out = Out { start: out.start, row_stride: out.column_stride, column_stride: out.row_stride };
        // SAFETY: the caller's, of the transposed product.
        return unsafe { multiply_blocks(out, right.t(), left.t(), scale, accumulate) };
    }
    // SAFETY: the caller's.
    unsafe { multiply_blocks(out, left, right, scale, accumulate) }
}

/// Computes `out = scale * left * right`, or adds to it, by the micro kernels.
///
/// # Safety
/// As for [`multiply`].
unsafe fn multiply_blocks(out: Out, left: Matrix<'_>, right: Matrix<'_>, scale: f32, accumulate: bool) {
    let kernels = kernels();
    let (rows, columns, depth) = (left.rows, right.columns, left.columns);
    let Kernels { lanes, height, width, .. } = *kernels;
    let KernelParams { kc, mc, nc } = blocks(kernels, [rows, columns, depth]);
    let packs_right = rows > if right.row_stride == 1 { 128 } else { 2 } * height;
    let is_ready = left.row_stride == 1 && rows.is_multiple_of(lanes);
    // Terms so far apart share few sets of a cache, so that each panel of columns would read them from memory.
    let is_crowded = left.column_stride.is_multiple_of(CROWDED) && columns > 2 * width;
    let packs_left_first = rows <= 2 * mc && !is_ready;
    let of_right = if packs_right { kc * width * (nc / width) } else { 0 };
    let of_left = kc * if packs_left_first { rows.next_multiple_of(height) } else { mc };
    with_packed(of_right.next_multiple_of(32) + of_left, |packed| {
        let (right_panels, left_panels) = packed.split_at_mut(of_right.next_multiple_of(32));
        for column in (0..columns).step_by(nc) {
            let right = right.columns(column..columns.min(column + nc));
            for term in (0..depth).step_by(kc) {
                let terms = term..depth.min(term + kc);
                let (left, right) = (left.columns(terms.clone()), right.rows(terms));
                if packs_right {
                    pack(right.t(), width, kc * width, right_panels);
                }
                if packs_left_first {
                    pack(left, height, kc * height, left_panels);
                }
                let right_panels = packs_right.then_some(&*right_panels);
                let mut row = 0;
                while row < rows {
                    let mut count = mc.min(rows - row);
                    if count > lanes && !packs_left_first {
                        count = count / lanes * lanes;
                    }
                    let block = left.rows(row..row + count);
                    let packs_left = !packs_left_first
                        && (!count.is_multiple_of(lanes)
                            || left.row_stride != 1
                            || is_crowded
                            || right.columns > 8 * width);
                    if packs_left {
                        pack(block, height, kc * height, left_panels);
                    }
                    let left_panels = match (packs_left_first, packs_left) {
                        (true, _) => Some(&left_panels[row / height * kc * height..]),
                        (_, true) => Some(&*left_panels),
                        _ => None,
                    };
                    let start = out.start.wrapping_add(row * out.row_stride + column * out.column_stride);
                    let tiles = Tiles {
                        out: Out { start, ..out },
                        left: (block, left_panels),
                        right: (right, right_panels),
                        stride: kc,
                        scale,
                        accumulate: accumulate || term > 0,
                    };
                    // SAFETY: the caller's. The block's rows and columns are inside the output.
                    unsafe { tiles.multiply(kernels) };
                    row += count;
                }
            }
        }
    });
}

/// One block of a product: factors, each with its panels if it is packed.
struct Tiles<'a> {
    out: Out,
    left: (Matrix<'a>, Option<&'a [f32]>),
    right: (Matrix<'a>, Option<&'a [f32]>),
    /// Terms between the starts of two panels.
    stride: usize,
    scale: f32,
    accumulate: bool,
}

impl Tiles<'_> {
    /// Multiplies each panel of the left factor with each of the right one.
    ///
    /// # Safety
    /// As for [`multiply`]. A left factor without panels has contiguous columns whose length is a multiple of the vector's.
    unsafe fn multiply(&self, kernels: &Kernels) {
        let Kernels { lanes, height, width, table } = *kernels;
        let (&Tiles { out, stride, scale, accumulate, .. }, (left, left_panels), (right, right_panels)) =
            (self, self.left, self.right);
        let terms = left.columns;
        let mut column = 0;
        while column < right.columns {
            let rest = right.columns - column;
            let across = match right_panels {
                // Kernels for few columns have too few sums to hide the latency of an addition. Two tiles of about half the rest have enough.
                None if rest > width && rest < 2 * width - 1 => rest.div_ceil(2),
                _ => width.min(rest),
            };
            let (right_start, right_strides) = match right_panels {
                Some(panels) => (panels[column * stride..][..terms * width].as_ptr(), [width, 1]),
                None => (right.moved(0, column), [right.row_stride, right.column_stride]),
            };
            for row in (0..left.rows).step_by(height) {
                let down = height.min(left.rows - row);
                let (left_start, left_stride) = match left_panels {
                    Some(panels) => (panels[row * stride..][..terms * height].as_ptr(), height),
                    None => (left.moved(row, 0), left.column_stride),
                };
                let start = out.start.wrapping_add(row * out.row_stride + column * out.column_stride);
                let kernel = table[(down.div_ceil(lanes) - 1) * width + across - 1];
                // SAFETY: panels have whole vectors of `height` rows and `width` columns for each term, as sliced above. Factors without panels
                // have the caller's sizes, which `Matrix` keeps inside its slice. `kernels` found the instructions on this machine.
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
                        u8::from(accumulate),
                        false,
                        false,
                        false,
                        std::ptr::null(),
                    );
                }
            }
            column += across;
        }
    }
}
