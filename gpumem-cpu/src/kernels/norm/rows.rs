//! Loops over one row of a normalisation whose elements have a parameter each.

use crate::simd::Loop;

/// Columns whose parameters' gradients are summed at once.
pub(super) const BLOCK: usize = 64;

/// Returns the sum of a function of the elements of rows of one length, in double precision and in eight lanes.
#[inline(always)]
fn sum<const N: usize>(rows: [&[f32]; N], f: impl Fn([f32; N]) -> f64) -> f64 {
    let mut lanes = [0.0; 8];
    let rows = rows.map(|row| row.as_chunks::<8>());
    let count = rows.iter().map(|(blocks, _)| blocks.len()).min().unwrap_or(0);
    for index in 0..count {
        let blocks = rows.map(|(blocks, _)| &blocks[index]);
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += f(blocks.map(|block| block[lane]));
        }
    }
    let rest = rows.map(|(_, rest)| rest);
    let of_rest = (0..rest[0].len()).map(|index| f(rest.map(|row| row[index])));
    lanes.iter().sum::<f64>() + of_rest.sum::<f64>()
}

/// The mean of a row, or 0 if it is not centred, and the sum of the squares of the differences from it.
pub(super) struct Moments<'a> {
    pub(super) row: &'a [f32],
    pub(super) center: bool,
}

impl Loop for Moments<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn call(self) -> [f64; 2] {
        let Moments { row, center } = self;
        let mean = if center { sum([row], |[x]| f64::from(x)) / row.len() as f64 } else { 0.0 };
        [mean, sum([row], |[x]| (f64::from(x) - mean) * (f64::from(x) - mean))]
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
        match (x, weight, bias) {
            (Some(x), Some(weight), Some(bias)) => {
                for (((y, x), weight), bias) in y.iter_mut().zip(x).zip(weight).zip(bias) {
                    *y = (x - mean) * rstd * weight + bias;
                }
                return;
            }
            (None, Some(weight), Some(bias)) => {
                for ((y, weight), bias) in y.iter_mut().zip(weight).zip(bias) {
                    *y = (*y - mean) * rstd * weight + bias;
                }
                return;
            }
            (Some(x), ..) => {
                for (y, x) in y.iter_mut().zip(x) {
                    *y = (x - mean) * rstd;
                }
            }
            (None, ..) => {
                for y in &mut *y {
                    *y = (*y - mean) * rstd;
                }
            }
        }
        if let Some(weight) = weight {
            for (y, weight) in y.iter_mut().zip(weight) {
                *y *= weight;
            }
        }
        if let Some(bias) = bias {
            for (y, bias) in y.iter_mut().zip(bias) {
                *y += bias;
            }
        }
    }
}

/// The sums of `dy * (x - mean) * rstd` and of `dy` over all rows, for at most [`BLOCK`] columns.
pub(super) struct Columns<'a, F> {
    /// The mean and `1 / std` of a row.
    pub(super) statistics: F,
    /// The elements of a row. The next two fields are the first column and their number.
    pub(super) length: usize,
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) dy: &'a [f32],
    pub(super) x: &'a [f32],
}

impl<F: Fn(usize) -> (f32, f32)> Loop for Columns<'_, F> {
    type Output = [[f64; BLOCK]; 2];

    #[inline(always)]
    fn call(self) -> [[f64; BLOCK]; 2] {
        let Columns { statistics, length, first, count, dy, x } = self;
        let (mut of_weight, mut of_bias) = ([0.0; BLOCK], [0.0; BLOCK]);
        let rows = dy.chunks_exact(length).zip(x.chunks_exact(length));
        for (row, (dy, x)) in rows.enumerate() {
            let (mean, rstd) = statistics(row);
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

impl Loop for Back<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        match self.weight {
            Some(weight) => self.with(weight, |dy, weight| dy * weight),
            // Any row of this length serves as a weight that is not read.
            None => {
                let x = self.x;
                self.with(x, |dy, _| dy);
            }
        }
    }
}

impl Back<'_> {
    /// Computes the gradient with `g` as a function of `dy` and of the weight.
    #[inline(always)]
    fn with(self, weight: &[f32], g: impl Fn(f32, f32) -> f32) {
        let Back { center, statistics: (mean, rstd), x, dy, dx, accumulate, .. } = self;
        let (length, n) = (x.len() as f64, |x: f32| (x - mean) * rstd);
        let whole = dy.unwrap_or(&*dx);
        let of_g = if center { (sum([whole, weight], |[dy, w]| f64::from(g(dy, w))) / length) as f32 } else { 0.0 };
        let product = |[dy, w, x]: [f32; 3]| f64::from(g(dy, w)) * f64::from(n(x));
        let of_product = (sum([whole, weight, x], product) / length) as f32;
        let value = |dy: f32, w: f32, x: f32| rstd * (g(dy, w) - of_g - n(x) * of_product);
        match dy {
            None => {
                for ((dx, &w), &x) in dx.iter_mut().zip(weight).zip(x) {
                    *dx = value(*dx, w, x);
                }
            }
            Some(dy) if accumulate => {
                for (((dx, &dy), &w), &x) in dx.iter_mut().zip(dy).zip(weight).zip(x) {
                    *dx += value(dy, w, x);
                }
            }
            Some(dy) => {
                for (((dx, &dy), &w), &x) in dx.iter_mut().zip(dy).zip(weight).zip(x) {
                    *dx = value(dy, w, x);
                }
            }
        }
    }
}
