//! Parallel loops and reductions. They split at points that depend on lengths only, so that results do not depend on the number of threads.
//! They split by halves with `rayon::join`, which does not allocate.

use crate::simd::{Loop, wide};
use rayon::prelude::*;
use std::cell::RefCell;
use std::ops::Range;
use std::thread::LocalKey;

/// Number of elements below which another thread does not pay off.
pub(crate) const GRAIN: usize = 1 << 14;

/// Default number of elements of a piece.
pub(crate) const PIECE: usize = 1024;

/// A function of a piece: its number, its part of `x` if there is one, and its part of `y`.
type PieceFn<'a> = dyn Fn(usize, Option<&[f32]>, &mut [f32]) -> f64 + Sync + 'a;

/// Calls `f(i, x piece, y piece)` for each piece of `length` elements of `y`, and of `x` if there is one. Returns the sum of the results.
pub(crate) fn pieces<F>(x: Option<&[f32]>, y: &mut [f32], length: usize, f: F) -> f64
where
    F: Fn(usize, Option<&[f32]>, &mut [f32]) -> f64 + Sync,
{
    // Compiled once for all closures. There are hundreds of them, and each would add its own thread tasks to the binary.
    fn halves(first: usize, x: Option<&[f32]>, y: &mut [f32], length: usize, f: &PieceFn<'_>) -> f64 {
        let count = y.len().div_ceil(length);
        if count > 1 && y.len() > GRAIN {
            let cut = count / 2 * length;
            let (left, right) = y.split_at_mut(cut);
            let (x_left, x_right) = x.map(|x| x.split_at(cut)).unzip();
            let run = |first, x, y| halves(first, x, y, length, f);
            let (a, b) = rayon::join(|| run(first, x_left, left), || run(first + count / 2, x_right, right));
            return a + b;
        }
        let mut sum = 0.0;
        for (i, y) in y.chunks_mut(length).enumerate() {
            let x = x.map(|x| &x[i * length..][..y.len()]);
            sum += f(first + i, x, y);
        }
        sum
    }
    halves(0, x, y, length.max(1), &f)
}

/// Returns the sum of `f` over parts of `range` of at most `grain` indices.
pub(crate) fn sum_over(range: Range<usize>, grain: usize, f: &(dyn Fn(Range<usize>) -> f64 + Sync)) -> f64 {
    if range.len() <= grain.max(1) {
        return f(range);
    }
    let middle = range.start + range.len() / 2;
    let (a, b) = rayon::join(|| sum_over(range.start..middle, grain, f), || sum_over(middle..range.end, grain, f));
    a + b
}

/// Returns `sum(f(x))` in double precision, summed in eight lanes.
pub(crate) fn sum(x: &[f32], f: impl Fn(f32) -> f64) -> f64 {
    wide(Sum(x, f))
}

struct Sum<'a, F>(&'a [f32], F);

impl<F: Fn(f32) -> f64> Loop for Sum<'_, F> {
    type Output = f64;

    #[inline(always)]
    fn call(self) -> f64 {
        let Sum(x, f) = self;
        let mut lanes = [0.0; 8];
        let (blocks, rest) = x.as_chunks::<8>();
        for block in blocks {
            for (lane, &x) in lanes.iter_mut().zip(block) {
                *lane += f(x);
            }
        }
        lanes.iter().sum::<f64>() + rest.iter().map(|&x| f(x)).sum::<f64>()
    }
}

/// Returns `sum(f(x, y))` in double precision, summed in eight lanes.
pub(crate) fn sum_of_pairs(x: &[f32], y: &[f32], f: impl Fn(f32, f32) -> f64) -> f64 {
    wide(SumOfPairs(x, y, f))
}

struct SumOfPairs<'a, F>(&'a [f32], &'a [f32], F);

impl<F: Fn(f32, f32) -> f64> Loop for SumOfPairs<'_, F> {
    type Output = f64;

    #[inline(always)]
    fn call(self) -> f64 {
        let SumOfPairs(x, y, f) = self;
        let mut lanes = [0.0; 8];
        let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<8>(), y.as_chunks::<8>());
        for (x, y) in xs.iter().zip(ys) {
            for ((lane, &x), &y) in lanes.iter_mut().zip(x).zip(y) {
                *lane += f(x, y);
            }
        }
        lanes.iter().sum::<f64>() + x_rest.iter().zip(y_rest).map(|(&x, &y)| f(x, y)).sum::<f64>()
    }
}

/// Returns the largest element, ignoring NaN.
pub(crate) fn largest(x: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    wide(|| {
        let mut lanes = [f32::NEG_INFINITY; 16];
        let (blocks, rest) = x.as_chunks::<16>();
        for block in blocks {
            lanes.iter_mut().zip(block).for_each(|(lane, &x)| *lane = larger(*lane, x));
        }
        lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, larger)
    })
}

/// Columns that one task of [`column_sums`] sums.
const COLUMNS: usize = 64;

/// Computes `out[j] (+)= sum over rows of f(row, j)` in double precision. `f` takes a row, a first column and some sums, and adds the row's values
/// from that column on to the sums.
pub(crate) fn column_sums(out: &mut [f32], accumulate: bool, rows: usize, f: impl Fn(usize, usize, &mut [f64]) + Sync) {
    let columns = |(block, out): (usize, &mut [f32])| {
        let mut sums = [0.0; COLUMNS];
        let sums = &mut sums[..out.len()];
        wide(Rows(rows, block * COLUMNS, &mut *sums, &f));
        store(out, accumulate, |j| sums[j] as f32);
    };
    if out.len() * rows > GRAIN {
        out.par_chunks_mut(COLUMNS).enumerate().for_each(columns);
    } else {
        out.chunks_mut(COLUMNS).enumerate().for_each(columns);
    }
}

/// The number of rows, the first column and the sums of a block of columns, and the function that adds a row.
struct Rows<'a, F>(usize, usize, &'a mut [f64], F);

impl<F: Fn(usize, usize, &mut [f64])> Loop for Rows<'_, F> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Rows(rows, first, sums, f) = self;
        (0..rows).for_each(|row| f(row, first, sums));
    }
}

/// Computes `out[i] (+)= f(i)`.
pub(crate) fn store(out: &mut [f32], accumulate: bool, f: impl Fn(usize) -> f32) {
    if accumulate {
        wide(|| out.iter_mut().enumerate().for_each(|(i, out)| *out += f(i)));
    } else {
        wide(|| out.iter_mut().enumerate().for_each(|(i, out)| *out = f(i)));
    }
}

/// Calls `f` with `length` floats of this thread's scratch memory, which are not cleared.
///
/// The buffer is taken from a stack while `f` runs. If `f` waits for other tasks, this thread may start one that needs scratch memory too.
/// That task gets the next buffer of the stack, so after the first steps no buffer is allocated.
pub(crate) fn with_scratch<R>(length: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    thread_local!(static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) });
    with_buffer(&SCRATCH, length, f)
}

/// Calls `f` with `length` sums in double precision that are 0. Their memory is kept as that of [`with_scratch`].
pub(crate) fn with_sums<R>(length: usize, f: impl FnOnce(&mut [f64]) -> R) -> R {
    thread_local!(static SUMS: RefCell<Vec<Vec<f64>>> = const { RefCell::new(Vec::new()) });
    with_buffer(&SUMS, length, |sums| {
        sums.fill(0.0);
        f(sums)
    })
}

fn with_buffer<T: Copy + Default, R>(
    stack: &'static LocalKey<RefCell<Vec<Vec<T>>>>,
    length: usize,
    f: impl FnOnce(&mut [T]) -> R,
) -> R {
    let mut buffer = stack.with_borrow_mut(Vec::pop).unwrap_or_default();
    let result = f(grown(&mut buffer, length));
    stack.with_borrow_mut(|stack| stack.push(buffer));
    result
}

/// Returns the first `length` numbers of `buffer`, which grows if necessary.
pub(crate) fn grown<T: Copy + Default>(buffer: &mut Vec<T>, length: usize) -> &mut [T] {
    if buffer.len() < length {
        buffer.resize(length, T::default());
    }
    &mut buffer[..length]
}
