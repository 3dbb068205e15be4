//! Exponentials of whole rows, for softmax and losses.

use super::exp;
use crate::parallel;
use crate::simd::{Loop, wide};

/// Computes `y (+)= factor * exp(x - shift)`. Without `x`, `y` is overwritten by that of itself.
pub(crate) fn exponentials(x: Option<&[f32]>, y: &mut [f32], accumulate: bool, [shift, factor]: [f32; 2]) {
    wide(Exponentials { x, y, accumulate, shift, factor });
}

struct Exponentials<'a> {
    x: Option<&'a [f32]>,
    y: &'a mut [f32],
    accumulate: bool,
    shift: f32,
    factor: f32,
}

impl Loop for Exponentials<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Exponentials { x, y, accumulate, shift, factor } = self;
        match x {
            None => {
                for y in y {
                    *y = exp(*y - shift) * factor;
                }
            }
            Some(x) if accumulate => {
                for (y, x) in y.iter_mut().zip(x) {
                    *y += exp(x - shift) * factor;
                }
            }
            Some(x) => {
                for (y, x) in y.iter_mut().zip(x) {
                    *y = exp(x - shift) * factor;
                }
            }
        }
    }
}

/// Returns the sum of `exp(x - shift)`, in double precision.
pub(crate) fn sum_of_exponentials(x: &[f32], shift: f32) -> f64 {
    let mut room = [0.0; 256];
    let parts = x.chunks(room.len()).map(|x| {
        let y = &mut room[..x.len()];
        exponentials(Some(x), y, false, [shift, 1.0]);
        parallel::sum(y, f64::from)
    });
    parts.sum()
}
