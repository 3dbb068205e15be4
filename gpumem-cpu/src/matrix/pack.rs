//! Copies of the factors of products in panels.
//!
//! A panel has some rows of a factor. The elements of one term of the sums are contiguous in it.

use super::Matrix;
use std::ops::Range;

/// Packs the rows of `from` in panels of `height` rows, `stride` floats apart. The missing rows of the last panel are zeros.
pub(crate) fn pack(from: Matrix<'_>, height: usize, stride: usize, out: &mut [f32]) {
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

/// Rows, and terms, of the squares that [`pack_turned`] turns.
const SQUARE: usize = 4;

/// Floats of a cache line.
const LINE: usize = 16;

/// Packs one panel of rows whose terms are contiguous: a cache line of as many rows at a time, for all terms.
fn pack_turned(from: Matrix<'_>, height: usize, out: &mut [f32]) {
    let terms = from.columns;
    for group in (0..height).step_by(LINE) {
        let rows = group..height.min(group + LINE);
        for (line, out) in out.chunks_mut(LINE * height).enumerate() {
            let terms = line * LINE..terms.min((line + 1) * LINE);
            for first in rows.clone().step_by(SQUARE) {
                turn(from, first..rows.end.min(first + SQUARE), terms.clone(), height, out);
            }
        }
    }
}

/// Packs at most [`SQUARE`] rows of at most [`LINE`] terms.
#[inline]
fn turn(from: Matrix<'_>, rows: Range<usize>, terms: Range<usize>, height: usize, out: &mut [f32]) {
    // Rows that are missing are zeros.
    let row = |row: usize| {
        let row = rows.start + row;
        if row < rows.end.min(from.rows) { &from.row(row)[terms.clone()] } else { &[] }
    };
    let sources: [&[f32]; SQUARE] = std::array::from_fn(row);
    if let [Some(a), Some(b), Some(c), Some(d)] = sources.map(<[f32]>::first_chunk::<LINE>) {
        let [a, b, c, d] = [a, b, c, d].map(|row| row.as_chunks::<SQUARE>().0);
        for (square, out) in out.chunks_exact_mut(SQUARE * height).enumerate() {
            let [a, b, c, d] = [a[square], b[square], c[square], d[square]];
            for (term, out) in out.chunks_exact_mut(height).enumerate() {
                // An array, since a copy of a slice is a call.
                if let Some(to) = out[rows.start..].first_chunk_mut() {
                    *to = [a[term], b[term], c[term], d[term]];
                }
            }
        }
        return;
    }
    for (term, out) in out.chunks_exact_mut(height).enumerate() {
        for (to, source) in out[rows.clone()].iter_mut().zip(sources) {
            *to = source.get(term).copied().unwrap_or_default();
        }
    }
}
