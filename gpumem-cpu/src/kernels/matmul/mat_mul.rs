//! Products of two matrices that are both values, `y = a b` or `y = a b^T`, one for each sample and position.
//!
//! Backward: `da = dy b^T` and `db = a^T dy`. With b transposed, `da = dy b` and `db = dy^T a`.

use crate::kernels::{Bound, kernel};
use crate::matrix::{Matrix, MatrixMut, product_parallel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::MatMul;

/// The sizes of a product, and the number of products.
#[derive(Clone, Copy)]
struct Sizes {
    count: usize,
    rows: usize,
    depth: usize,
    columns: usize,
    transpose_b: bool,
}

impl Sizes {
    fn new(op: &MatMul, operands: &Operands<'_>) -> Result<Sizes, Error> {
        let [rows, depth, columns] = [op.rows, op.depth, op.columns].map(|size| count(&[size]));
        if rows == 0 || depth == 0 || columns == 0 {
            return Err(Error::Damaged("a product of matrices without elements"));
        }
        let count = count(&[operands.batch(), op.count]);
        Ok(Sizes { count, rows, depth, columns, transpose_b: op.transpose_b })
    }

    /// Returns the elements of a, b and y in one product.
    fn each(&self) -> [usize; 3] {
        let Sizes { rows, depth, columns, .. } = *self;
        [rows.saturating_mul(depth), depth.saturating_mul(columns), rows.saturating_mul(columns)]
    }

    fn all(&self) -> [usize; 3] {
        self.each().map(|each| each.saturating_mul(self.count))
    }

    fn a<'d>(&self, data: &'d [f32]) -> Matrix<'d> {
        Matrix::new(data, self.rows, self.depth, self.depth)
    }

    /// Returns b as a matrix [depth, columns].
    fn b<'d>(&self, data: &'d [f32]) -> Matrix<'d> {
        if self.transpose_b {
            Matrix::new(data, self.columns, self.depth, self.depth).t()
        } else {
            Matrix::new(data, self.depth, self.columns, self.columns)
        }
    }

    fn y<'d>(&self, data: &'d [f32]) -> Matrix<'d> {
        Matrix::new(data, self.rows, self.columns, self.columns)
    }
}

/// Computes `y` from both inputs.
pub(in crate::kernels) fn forward(op: &MatMul, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op, operands)?;
    let [a, b, y] = sizes.all();
    let (a, b) = (operands.source(Slot::Input(0), a)?, operands.source(Slot::Input(1), b)?);
    let mut output = operands.target(Slot::Output, y)?;
    kernel(move |_| {
        let [a_each, b_each, y_each] = sizes.each();
        let factors = a.get().chunks_exact(a_each).zip(b.get().chunks_exact(b_each));
        for (y, (a, b)) in output.get().chunks_exact_mut(y_each).zip(factors) {
            let y = MatrixMut::new(y, sizes.rows, sizes.columns, sizes.columns);
            product_parallel(y, sizes.a(a), sizes.b(b), false);
        }
    })
}

/// Computes the gradient of one input.
pub(in crate::kernels) fn backward(op: &MatMul, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op, operands)?;
    let [a, b, y] = sizes.all();
    let [a_each, b_each, y_each] = sizes.each();
    let gradient = operands.source(Slot::Gradient, y)?;
    if let Some(mut target) = operands.gradient(Slot::InputGradient(0), a)? {
        let b = operands.source(Slot::Input(1), b)?;
        return kernel(move |_| {
            let factors = gradient.get().chunks_exact(y_each).zip(b.get().chunks_exact(b_each));
            for (da, (dy, b)) in target.target.get().chunks_exact_mut(a_each).zip(factors) {
                let da = MatrixMut::new(da, sizes.rows, sizes.depth, sizes.depth);
                product_parallel(da, sizes.y(dy), sizes.b(b).t(), target.accumulate);
            }
        });
    }
    let lacking = Error::Damaged("the gradient of a product is that of neither factor");
    let mut target = operands.gradient(Slot::InputGradient(1), b)?.ok_or(lacking)?;
    let a = operands.source(Slot::Input(0), a)?;
    kernel(move |_| {
        let factors = gradient.get().chunks_exact(y_each).zip(a.get().chunks_exact(a_each));
        for (db, (dy, a)) in target.target.get().chunks_exact_mut(b_each).zip(factors) {
            let (dy, a) = (sizes.y(dy), sizes.a(a));
            let (rows, left, right) =
                if sizes.transpose_b { (sizes.columns, dy.t(), a) } else { (sizes.depth, a.t(), dy) };
            let columns = if sizes.transpose_b { sizes.depth } else { sizes.columns };
            product_parallel(MatrixMut::new(db, rows, columns, columns), left, right, target.accumulate);
        }
    })
}
