//! Spectral normalisation: `y = W / sigma`, where `sigma = u^T W v` estimates the largest singular value. W has an element `w[a, r, b]` for each
//! row `r` and each column `(a, b)`.
//!
//! Backward, with u and v as constants: `dW = (dy - (sum of dy * W) / sigma * u v^T) / sigma`.

use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel::with_sums;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::SpectralNorm;

/// The weight as a matrix.
#[derive(Clone, Copy)]
struct Matrix {
    outer: usize,
    rows: usize,
    inner: usize,
    eps: f64,
}

impl Matrix {
    fn new(op: &SpectralNorm) -> Result<Matrix, Error> {
        if !op.is_sound() {
            return Err(Error::Damaged("a weight's rows are not all of it"));
        }
        let [outer, rows, inner] = op.sizes.map(|size| count(&[size]));
        Ok(Matrix { outer, rows, inner, eps: op.eps })
    }

    fn columns(self) -> usize {
        self.outer * self.inner
    }

    fn length(self) -> usize {
        self.rows * self.columns()
    }

    /// Returns the indices of the elements of a row, in the order of the columns.
    fn places(self, row: usize) -> impl Iterator<Item = usize> {
        let starts = (0..self.outer).map(move |outer| (outer * self.rows + row) * self.inner);
        starts.flat_map(move |start| start..start + self.inner)
    }

    /// Sets u to `W v`, scaled to length 1.
    fn left(self, w: &[f32], u: &mut [f32], v: &[f32]) {
        with_sums(self.rows, |products| {
            for (row, product) in products.iter_mut().enumerate() {
                *product = self.places(row).zip(v).map(|(at, v)| f64::from(w[at]) * f64::from(*v)).sum();
            }
            self.normalize(products, u);
        });
    }

    /// Calls `f` with `W^T u`.
    fn with_products<R>(self, w: &[f32], u: &[f32], f: impl FnOnce(&[f64]) -> R) -> R {
        with_sums(self.columns(), |products| {
            for (row, u) in u.iter().enumerate() {
                let all = self.places(row).zip(&mut *products);
                all.for_each(|(at, product)| *product += f64::from(w[at]) * f64::from(*u));
            }
            f(products)
        })
    }

    /// Writes `from` scaled to length 1, or to a smaller length if `from` is shorter than `eps`.
    fn normalize(self, from: &[f64], to: &mut [f32]) {
        let length = from.iter().map(|x| x * x).sum::<f64>().sqrt().max(self.eps);
        to.iter_mut().zip(from).for_each(|(to, from)| *to = (from / length) as f32);
    }
}

/// Computes the weight over sigma. In training it saves `1 / sigma`, u and v; a recomputation reads the saved values.
pub(in crate::kernels) fn forward(op: &SpectralNorm, operands: &mut Operands<'_>) -> Bound {
    let matrix = Matrix::new(op)?;
    let (rows, columns, length) = (matrix.rows, matrix.columns(), matrix.length());
    let w = operands.source(Slot::Input(0), length)?;
    let mut y = operands.target(Slot::Output, length)?;
    let of_saved = |saved: &[f32], w: &[f32], y: &mut [f32]| y.iter_mut().zip(w).for_each(|(y, w)| *y = w * saved[0]);
    if operands.reads(Slot::Saved(0)) {
        let saved = operands.source(Slot::Saved(0), 1 + rows + columns)?;
        return kernel(move |_| of_saved(saved.get(), w.get(), y.get()));
    }
    let mut saved = operands.target_if_any(Slot::Saved(0), 1 + rows + columns)?;
    // Training reads and writes u and v. Inference only reads them.
    let mut moving = match operands.target_if_any(Slot::Buffer(0), rows)? {
        Some(u) => Some((u, operands.target(Slot::Buffer(1), columns)?)),
        None => None,
    };
    let resting = match &moving {
        None => Some((operands.source(Slot::Buffer(0), rows)?, operands.source(Slot::Buffer(1), columns)?)),
        Some(_) => None,
    };
    kernel(move |_| {
        let w = w.get();
        if let Some((u, v)) = &mut moving {
            matrix.left(w, u.get(), v.get());
            matrix.with_products(w, u.get(), |products| matrix.normalize(products, v.get()));
        }
        let (u, v) = match (&mut moving, &resting) {
            (Some((u, v)), _) => (&*u.get(), &*v.get()),
            (None, Some((u, v))) => (u.get(), v.get()),
            (None, None) => return,
        };
        let sigma: f64 = matrix
            .with_products(w, u, |products| products.iter().zip(v).map(|(product, v)| product * f64::from(*v)).sum());
        let inverse = (1.0 / sigma) as f32;
        if let Some(saved) = &mut saved {
            let saved = saved.get();
            saved[0] = inverse;
            saved[1..=rows].copy_from_slice(u);
            saved[1 + rows..].copy_from_slice(v);
        }
        of_saved(&[inverse], w, y.get());
    })
}

/// Computes the gradient of the weight.
pub(in crate::kernels) fn backward(op: &SpectralNorm, operands: &mut Operands<'_>) -> Bound {
    let matrix = Matrix::new(op)?;
    let (rows, length) = (matrix.rows, matrix.length());
    let gradient = operands.source(Slot::Gradient, length)?;
    let w = operands.source(Slot::Input(0), length)?;
    let saved = operands.source(Slot::Saved(0), 1 + rows + matrix.columns())?;
    let mut out = operands.gradient(Slot::InputGradient(0), length)?;
    kernel(move |_| {
        let (dy, w, saved) = (gradient.get(), w.get(), saved.get());
        let Some(out) = &mut out else { return };
        let (inverse, u, v) = (saved[0], &saved[1..=rows], &saved[1 + rows..]);
        let sum: f64 = dy.iter().zip(w).map(|(dy, w)| f64::from(*dy) * f64::from(*w)).sum();
        let share = (sum * f64::from(inverse)) as f32;
        let dw = out.target.get();
        for (row, u) in u.iter().enumerate() {
            for (at, v) in matrix.places(row).zip(v) {
                let before = if out.accumulate { dw[at] } else { 0.0 };
                dw[at] = before + (dy[at] - share * u * v) * inverse;
            }
        }
    })
}
