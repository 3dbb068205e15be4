//! Muon's step for a matrix: Newton-Schulz iteration makes the momentum orthogonal. All of it is single precision, except the norm.

use super::elements::PIECE;
use crate::kernels::at_least;
use crate::matrix::{Matrix, MatrixMut, product_parallel, transpose};
use crate::parallel::with_sums;
use gpumem_core::shape::Shape;
use gpumem_core::train::optim::{Iteration, Muon, matrix};
use rayon::prelude::*;

/// Updates a matrix and its momentum. The scratch memory is laid out by [`Iteration`].
pub(super) fn step(muon: &Muon, (w, gradient): (&mut [f32], &[f32]), shape: Shape, m: &mut [f32], scratch: &mut [f32]) {
    let [rows, columns] = matrix(shape).map(|size| size as usize);
    let side = rows.min(columns);
    let Iteration { matrix, square, .. } = Iteration::new(shape);
    let (x, rest) = scratch.split_at_mut(matrix as usize);
    let (next, rest) = rest.split_at_mut(matrix as usize);
    let (gram, rest) = rest.split_at_mut(square as usize);
    let polynomial = &mut rest[..square as usize];
    let is_tall = rows > columns;
    let norm = ahead(muon, gradient, m, if is_tall { &mut *next } else { &mut *x });
    if is_tall {
        transpose(MatrixMut::new(x, columns, rows, rows), Matrix::new(next, rows, columns, columns));
    }
    let scale = (1.0 / at_least(muon.eps, norm)) as f32;
    x.par_chunks_mut(PIECE).for_each(|piece| piece.iter_mut().for_each(|x| *x *= scale));
    let (mut x, mut next) = (x, next);
    for _ in 0..muon.ns_steps {
        iterate(muon, [side, rows.max(columns)], (&*x, &mut *next), [&mut *gram, &mut *polynomial]);
        std::mem::swap(&mut x, &mut next);
    }
    if is_tall {
        transpose(MatrixMut::new(next, rows, columns, columns), Matrix::new(x, columns, rows, rows));
        std::mem::swap(&mut x, &mut next);
    }
    let (shrink, rate) =
        ((1.0 - muon.lr * muon.weight_decay) as f32, (muon.lr * muon.squared_ratio(shape).sqrt()) as f32);
    let pieces = w.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE));
    pieces.for_each(|(w, x)| w.iter_mut().zip(x).for_each(|(w, x)| *w = *w * shrink - rate * x));
}

/// Updates the momentum, writes the matrix to make orthogonal to `to`, and returns the norm of that matrix.
fn ahead(muon: &Muon, gradient: &[f32], m: &mut [f32], to: &mut [f32]) -> f64 {
    let (kept, rest) = (muon.momentum as f32, (1.0 - muon.momentum) as f32);
    with_sums(to.len().div_ceil(PIECE), |sums| {
        let pieces = m.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE)).zip(to.par_chunks_mut(PIECE));
        pieces.zip(sums.par_iter_mut()).for_each(|(((m, gradient), to), sum)| {
            let all = m.iter_mut().zip(gradient).zip(to).map(|((m, &g), to)| {
                *m = kept * *m + rest * g;
                *to = if muon.nesterov { rest * g + kept * *m } else { *m };
                f64::from(*to) * f64::from(*to)
            });
            *sum = all.sum::<f64>();
        });
        // The sum runs in the order of the pieces, so it does not depend on which thread computed which.
        sums.iter().sum::<f64>().sqrt()
    })
}

/// Computes `next = a x + (b G + c G G) x` with `G = x x^T`. `x` has the shape [`side`, `length`].
fn iterate(
    muon: &Muon,
    [side, length]: [usize; 2],
    (x, next): (&[f32], &mut [f32]),
    [gram, polynomial]: [&mut [f32]; 2],
) {
    let (a, b, c) = muon.ns_coefficients;
    let of_x = Matrix::new(x, side, length, length);
    product_parallel(MatrixMut::new(gram, side, side, side), of_x, of_x.t(), false);
    let of_gram = Matrix::new(gram, side, side, side);
    product_parallel(MatrixMut::new(polynomial, side, side, side), of_gram, of_gram, false);
    combine(polynomial, c as f32, gram, b as f32);
    product_parallel(
        MatrixMut::new(next, side, length, length),
        Matrix::new(polynomial, side, side, side),
        of_x,
        false,
    );
    combine(next, 1.0, x, a as f32);
}

/// Computes `to = p to + q from`.
fn combine(to: &mut [f32], p: f32, from: &[f32], q: f32) {
    let pieces = to.par_chunks_mut(PIECE).zip(from.par_chunks(PIECE));
    pieces.for_each(|(to, from)| to.iter_mut().zip(from).for_each(|(to, from)| *to = p * *to + q * from));
}
