//! The projection of each step's units to fewer outputs: `h[t] = u[t] W_r^T`, with `W_r` [P, H].

use super::Sizes;
use crate::matrix::{Matrix, MatrixMut, product_parallel};
use crate::operands::Gradient;

impl Sizes {
    /// Returns the elements of `W_r`.
    pub(super) fn projection(&self) -> usize {
        self.outputs.saturating_mul(self.hidden)
    }

    fn matrix_of_projection<'a>(&self, weight: &'a [f32]) -> Matrix<'a> {
        Matrix::new(weight, self.outputs, self.hidden, self.hidden)
    }

    /// Computes the outputs of a step [B, P] from its units [B, H].
    pub(super) fn project(&self, h: MatrixMut<'_>, units: &[f32], weight: &[f32]) {
        let units = Matrix::new(units, self.samples, self.hidden, self.hidden);
        product_parallel(h, units, self.matrix_of_projection(weight).t(), false);
    }

    /// Computes the gradients of a step's outputs and units. The former, kept in [B, T, P], is the sum of `dy` (which starts at this direction's
    /// first column) and `handed` [B, P], the gradient from the next step. The gradient of the units [B, H] then overwrites `handed`.
    pub(super) fn project_back(&self, t: usize, dy: &[f32], weight: &[f32], handed: &mut [f32], kept: &mut [f32]) {
        let Sizes { samples, steps, hidden, outputs, features, .. } = *self;
        for sample in 0..samples {
            let step = sample * steps + t;
            let dh = &mut kept[step * outputs..][..outputs];
            let sums = dy[step * features..].iter().zip(&handed[sample * outputs..]);
            dh.iter_mut().zip(sums).for_each(|(dh, (dy, handed))| *dh = dy + handed);
        }
        let dh = self.step(kept, t, outputs, [0, outputs]);
        product_parallel(MatrixMut::new(handed, samples, hidden, hidden), dh, self.matrix_of_projection(weight), false);
    }

    /// Computes `dW_r (+)= sum over samples and steps of dh[t]^T u[t]`.
    pub(super) fn sum_projection(&self, out: &mut Option<Gradient>, dh: &[f32], units: &[f32]) {
        let Some(out) = out else { return };
        let (rows, accumulate) = (self.samples * self.steps, out.accumulate);
        let dw = MatrixMut::new(out.target.get(), self.outputs, self.hidden, self.hidden);
        let units = Matrix::new(units, rows, self.hidden, self.hidden);
        product_parallel(dw, Matrix::new(dh, rows, self.outputs, self.outputs).t(), units, accumulate);
    }
}
