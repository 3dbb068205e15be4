//! Adafactor: means of rows and columns instead of a mean for each element. All sums, and the arithmetic of elements, are in double precision.

use super::scalar::F64;
use crate::kernels::at_least;
use crate::parallel::with_sums;
use gpumem_core::shape::Shape;
use gpumem_core::train::optim::Adafactor;
use rayon::prelude::*;

/// Columns whose means one task computes.
const STRIP: usize = 64;

/// Elements of a vector that one task sums. It is fixed, so the sum does not depend on the number of threads.
const PIECE: usize = 1 << 13;

/// Returns the square in double precision.
fn squared(x: f32) -> f64 {
    f64::from(x) * f64::from(x)
}

/// Moves a mean towards a value, by a share of the distance.
fn approach(mean: &mut f32, towards: f64, share: f64) {
    let old = f64::from(*mean);
    *mean = (old + share * (towards - old)) as f32;
}

/// Returns the root mean square of `elements` elements, whose squares have these partial sums.
fn root_mean(sums: &[f64], elements: usize) -> f64 {
    (sums.iter().sum::<f64>() / elements as f64).sqrt()
}

/// The numbers of one step.
struct StepNumbers {
    /// The smallest divisor of a gradient.
    least: f64,
    /// The weight of the new gradient in the means.
    share: f64,
    /// The factor of the weight decay.
    shrink: f64,
    /// The factor of a change: the learning rate times the size of the parameter.
    rate: f64,
    /// The largest root mean square of a change.
    limit: f64,
}

/// Applies step `t` to a parameter of this shape and its means of rows and columns. A vector has only one state, of its own size.
pub(super) fn divide(
    adafactor: &Adafactor,
    t: f64,
    (w, gradient): (&mut [f32], &[f32]),
    shape: Shape,
    [rows, columns]: [&mut [f32]; 2],
) {
    if w.is_empty() {
        return;
    }
    let size = with_sums(w.len().div_ceil(PIECE), |sums| {
        let pieces = sums.par_iter_mut().zip(w.par_chunks(PIECE));
        pieces.for_each(|(sum, piece)| *sum = piece.iter().map(|&x| squared(x)).sum());
        root_mean(sums, w.len())
    });
    let [F64(share), F64(inverse_root)] = adafactor.corrections(F64(t));
    let step = StepNumbers {
        least: adafactor.least(),
        share,
        shrink: 1.0 - adafactor.lr * adafactor.weight_decay,
        rate: at_least(adafactor.eps.1, size) * adafactor.lr.min(inverse_root),
        limit: adafactor.d,
    };
    match *shape.dims() {
        [.., height, width] => step.matrices(w, gradient, [height as usize, width as usize], [rows, columns]),
        _ => step.vector(w, gradient, rows),
    }
}

impl StepNumbers {
    /// Returns a gradient divided by the root of `variance`, the mean of its squares.
    fn scaled(&self, gradient: f32, variance: f64) -> f64 {
        f64::from(gradient) / at_least(self.least * self.least, variance).sqrt()
    }

    /// Returns the factor of all changes, whose root mean square is `root_mean`.
    fn factor(&self, root_mean: f64) -> f64 {
        self.rate / at_least(1.0, root_mean / self.limit)
    }

    fn change(&self, w: &mut f32, by: f64) {
        *w = (f64::from(*w) * self.shrink - by) as f32;
    }

    fn vector(&self, w: &mut [f32], gradient: &[f32], variances: &mut [f32]) {
        let root = with_sums(w.len().div_ceil(PIECE), |sums| {
            let pieces = gradient.par_chunks(PIECE).zip(variances.par_chunks_mut(PIECE)).zip(sums.par_iter_mut());
            pieces.for_each(|((gradient, variances), sum)| {
                let all = gradient.iter().zip(variances).map(|(&g, variance)| {
                    approach(variance, squared(g), self.share);
                    self.scaled(g, f64::from(*variance)).powi(2)
                });
                *sum = all.sum();
            });
            root_mean(sums, w.len())
        });
        let factor = self.factor(root);
        let pieces = w.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE)).zip(variances.par_chunks(PIECE));
        pieces.for_each(|((w, gradient), variances)| {
            for ((w, &g), &variance) in w.iter_mut().zip(gradient).zip(variances) {
                self.change(w, factor * self.scaled(g, f64::from(variance)));
            }
        });
    }

    /// Updates matrices, each with its rows in parallel.
    fn matrices(&self, w: &mut [f32], gradient: &[f32], [height, width]: [usize; 2], [rows, columns]: [&mut [f32]; 2]) {
        let matrix = height * width;
        let mean = |squares: f64, count: usize| squares / count as f64;
        rows.par_iter_mut().zip(gradient.par_chunks(width)).for_each(|(row, gradient)| {
            approach(row, mean(gradient.iter().map(|&g| squared(g)).sum(), width), self.share);
        });
        columns.par_chunks_mut(width).zip(gradient.par_chunks(matrix)).for_each(|(columns, gradient)| {
            columns.par_chunks_mut(STRIP).enumerate().for_each(|(strip, columns)| {
                let mut sums = [0.0; STRIP];
                for row in gradient.chunks(width) {
                    sums.iter_mut().zip(&row[strip * STRIP..]).for_each(|(sum, &g)| *sum += squared(g));
                }
                columns.iter_mut().zip(sums).for_each(|(column, sum)| approach(column, mean(sum, height), self.share));
            });
        });
        with_sums(w.len().div_ceil(matrix), |means| {
            let estimate = Estimate::new((&*rows, &*columns), [height, width], self.least, means);
            let root = with_sums(w.len().div_ceil(width), |sums| {
                let lines = sums.par_iter_mut().zip(gradient.par_chunks(width)).enumerate();
                lines.for_each(|(row, (sum, gradient))| {
                    let all = gradient.iter().zip(estimate.of_row(row));
                    *sum = all.map(|(&g, variance)| self.scaled(g, variance).powi(2)).sum();
                });
                root_mean(sums, w.len())
            });
            let factor = self.factor(root);
            let lines = w.par_chunks_mut(width).zip(gradient.par_chunks(width)).enumerate();
            lines.for_each(|(row, (w, gradient))| {
                for ((w, &g), variance) in w.iter_mut().zip(gradient).zip(estimate.of_row(row)) {
                    self.change(w, factor * self.scaled(g, variance));
                }
            });
        });
    }
}

/// Estimates of the mean square of each element, from the means of rows and columns.
struct Estimate<'a> {
    rows: &'a [f32],
    columns: &'a [f32],
    /// The mean of the rows' means, for each matrix.
    means: &'a [f64],
    height: usize,
    width: usize,
}

impl<'a> Estimate<'a> {
    /// Returns the estimates. `least` is a lower bound for the mean of a matrix, which is written to `means`.
    fn new(
        (rows, columns): (&'a [f32], &'a [f32]),
        [height, width]: [usize; 2],
        least: f64,
        means: &'a mut [f64],
    ) -> Estimate<'a> {
        let mean = |rows: &[f32]| rows.iter().copied().map(f64::from).sum::<f64>() / height as f64;
        let matrices = means.par_iter_mut().zip(rows.par_chunks(height));
        matrices.for_each(|(to, rows)| *to = at_least(least, mean(rows)));
        let means = &*means;
        Estimate { rows, columns, means, height, width }
    }

    /// Returns the estimates for the elements of a row, which is counted over all matrices.
    fn of_row(&self, row: usize) -> impl Iterator<Item = f64> {
        let at = row / self.height;
        let share = f64::from(self.rows[row]) / self.means[at];
        let columns = &self.columns[at * self.width..(at + 1) * self.width];
        columns.iter().map(move |&column| share * f64::from(column))
    }
}
