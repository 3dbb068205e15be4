//! Loops over one row of a normalisation whose elements have a parameter each.
//!
//! They go through blocks, which are computed in arrays on the stack: an array overlaps no tensor, so that the compiler vectorises each pass.

use super::row_norm::Sizes;
use crate::simd::Loop;

/// Elements of a block.
pub(super) const BLOCK: usize = 64;

/// Sums that are independent of each other, so that an addition need not wait for the one before.
const LANES: usize = 16;

/// The sums of `x - shift` and of its square.
///
/// With an element of the row as shift one pass is exact enough: the square of the mean is then at most as many times the variance as the row has
/// elements, and that is how often the rounding error of double precision counts.
pub(super) struct Moments<'a> {
    pub(super) row: &'a [f32],
    pub(super) shift: f64,
}

impl Loop for Moments<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn call(self) -> [f64; 2] {
        let Moments { row, shift } = self;
        let (mut sums, mut squares) = ([0.0; LANES], [0.0; LANES]);
        let (blocks, rest) = row.as_chunks::<LANES>();
        for block in blocks {
            for lane in 0..LANES {
                let x = f64::from(block[lane]) - shift;
                sums[lane] += x;
                squares[lane] += x * x;
            }
        }
        let mut all = [sums.iter().sum(), squares.iter().sum()];
        for &x in rest {
            let x = f64::from(x) - shift;
            all[0] += x;
            all[1] += x * x;
        }
        all
    }
}

/// Computes `y = (x - mean) * rstd * weight + bias`. Without `x`, `y` holds it.
pub(super) struct Forward<'a> {
    pub(super) x: Option<&'a [f32]>,
    pub(super) y: &'a mut [f32],
    pub(super) statistics: (f32, f32),
    pub(super) weight: Option<&'a [f32]>,
    pub(super) bias: Option<&'a [f32]>,
}

impl Loop for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Forward { x, y, statistics: (mean, rstd), weight, bias } = self;
        for first in (0..y.len()).step_by(BLOCK) {
            let count = BLOCK.min(y.len() - first);
            let mut made = [0.0; BLOCK];
            let made = &mut made[..count];
            made.copy_from_slice(&x.unwrap_or(&*y)[first..][..count]);
            for y in &mut *made {
                *y = (*y - mean) * rstd;
            }
            if let Some(weight) = weight {
                for (y, weight) in made.iter_mut().zip(&weight[first..]) {
                    *y *= weight;
                }
            }
            if let Some(bias) = bias {
                for (y, bias) in made.iter_mut().zip(&bias[first..]) {
                    *y += bias;
                }
            }
            y[first..][..count].copy_from_slice(made);
        }
    }
}

/// The sums of `dy * (x - mean) * rstd` and of `dy` over all rows, for at most [`BLOCK`] columns.
pub(super) struct Columns<'a> {
    pub(super) sizes: &'a Sizes,
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) dy: &'a [f32],
    pub(super) x: &'a [f32],
    pub(super) saved: &'a [f32],
}

impl Loop for Columns<'_> {
    type Output = [[f64; BLOCK]; 2];

    #[inline(always)]
    fn call(self) -> [[f64; BLOCK]; 2] {
        let Columns { sizes, first, count, dy, x, saved } = self;
        let (mut of_weight, mut of_bias) = ([0.0; BLOCK], [0.0; BLOCK]);
        let rows = dy.chunks_exact(sizes.length).zip(x.chunks_exact(sizes.length));
        for (row, (dy, x)) in rows.enumerate() {
            let (mean, rstd) = sizes.kept(saved, row);
            let (dy, x) = (&dy[first..][..count], &x[first..][..count]);
            for ((sum, dy), x) in of_weight.iter_mut().zip(dy).zip(x) {
                *sum += f64::from(*dy) * f64::from((x - mean) * rstd);
            }
            for (sum, dy) in of_bias.iter_mut().zip(dy) {
                *sum += f64::from(*dy);
            }
        }
        [of_weight, of_bias]
    }
}

/// Computes `dx (+)= rstd * (g - mean(g) - n * mean(g * n))` of a row, with `g = dy * weight` and `n = (x - mean) * rstd`.
///
/// Without `dy`, `dx` holds it.
pub(super) struct Back<'a> {
    pub(super) center: bool,
    pub(super) statistics: (f32, f32),
    pub(super) x: &'a [f32],
    pub(super) weight: Option<&'a [f32]>,
    pub(super) dy: Option<&'a [f32]>,
    pub(super) dx: &'a mut [f32],
    pub(super) accumulate: bool,
}

impl Back<'_> {
    /// Computes `g` and `n` of a block. Beyond the row they are 0.
    #[inline(always)]
    fn block(&self, first: usize) -> [[f32; BLOCK]; 2] {
        let count = BLOCK.min(self.x.len() - first);
        let (mut g, mut n) = ([0.0; BLOCK], [0.0; BLOCK]);
        g[..count].copy_from_slice(&self.dy.unwrap_or(&*self.dx)[first..][..count]);
        if let Some(weight) = self.weight {
            for (g, weight) in g.iter_mut().zip(&weight[first..]) {
                *g *= weight;
            }
        }
        let (mean, rstd) = self.statistics;
        for (n, x) in n.iter_mut().zip(&self.x[first..][..count]) {
            *n = (x - mean) * rstd;
        }
        [g, n]
    }
}

impl Loop for Back<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (mut sums, mut products) = ([0.0; LANES], [0.0; LANES]);
        for first in (0..self.x.len()).step_by(BLOCK) {
            let [g, n] = self.block(first);
            for (g, n) in g.as_chunks::<LANES>().0.iter().zip(n.as_chunks::<LANES>().0) {
                for lane in 0..LANES {
                    sums[lane] += f64::from(g[lane]);
                    products[lane] += f64::from(g[lane]) * f64::from(n[lane]);
                }
            }
        }
        let length = self.x.len() as f64;
        let sum = if self.center { (sums.iter().sum::<f64>() / length) as f32 } else { 0.0 };
        let product = (products.iter().sum::<f64>() / length) as f32;
        let (_, rstd) = self.statistics;
        for first in (0..self.x.len()).step_by(BLOCK) {
            let [mut g, n] = self.block(first);
            for (g, n) in g.iter_mut().zip(&n) {
                *g = rstd * (*g - sum - n * product);
            }
            let dx = &mut self.dx[first..];
            let count = BLOCK.min(dx.len());
            if self.accumulate {
                for (dx, g) in dx[..count].iter_mut().zip(&g) {
                    *dx += g;
                }
            } else {
                dx[..count].copy_from_slice(&g[..count]);
            }
        }
    }
}
