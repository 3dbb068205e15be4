//! A rule for all elements of a parameter, in pieces side by side, beside the elements of as many state tensors as it has.

use crate::simd::wide;
use rayon::prelude::*;

/// Elements that one task updates.
pub(super) const PIECE: usize = 1 << 13;

/// Without a state.
pub(super) fn none(w: &mut [f32], gradient: &[f32], change: impl Fn(&mut f32, f32) + Sync) {
    let pieces = w.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE));
    pieces.for_each(|(w, gradient)| wide(|| w.iter_mut().zip(gradient).for_each(|(w, &g)| change(w, g))));
}

/// With one.
pub(super) fn one(w: &mut [f32], gradient: &[f32], a: &mut [f32], change: impl Fn(&mut f32, f32, &mut f32) + Sync) {
    let pieces = w.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE)).zip(a.par_chunks_mut(PIECE));
    pieces.for_each(|((w, gradient), a)| {
        wide(|| {
            for ((w, &g), a) in w.iter_mut().zip(gradient).zip(a) {
                change(w, g, a);
            }
        });
    });
}

/// With two.
pub(super) fn two(
    w: &mut [f32],
    gradient: &[f32],
    [a, b]: [&mut [f32]; 2],
    change: impl Fn(&mut f32, f32, &mut f32, &mut f32) + Sync,
) {
    let states = a.par_chunks_mut(PIECE).zip(b.par_chunks_mut(PIECE));
    let pieces = w.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE)).zip(states);
    pieces.for_each(|((w, gradient), (a, b))| {
        wide(|| {
            for ((w, &g), (a, b)) in w.iter_mut().zip(gradient).zip(a.iter_mut().zip(b)) {
                change(w, g, a, b);
            }
        });
    });
}

/// With three.
pub(super) fn three(
    w: &mut [f32],
    gradient: &[f32],
    [a, b, c]: [&mut [f32]; 3],
    change: impl Fn(&mut f32, f32, &mut f32, &mut f32, &mut f32) + Sync,
) {
    let states = a.par_chunks_mut(PIECE).zip(b.par_chunks_mut(PIECE)).zip(c.par_chunks_mut(PIECE));
    let pieces = w.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE)).zip(states);
    pieces.for_each(|((w, gradient), ((a, b), c))| {
        wide(|| {
            for ((w, &g), ((a, b), c)) in w.iter_mut().zip(gradient).zip(a.iter_mut().zip(b).zip(c)) {
                change(w, g, a, b, c);
            }
        });
    });
}
