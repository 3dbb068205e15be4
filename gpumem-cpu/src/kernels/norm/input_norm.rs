//! Standardisation of channels with constants: `y[b, c, :] = scale[c] x[b, c, :] + shift[c]`.
//!
//! Backward, if `x` is not of bytes: `dx[b, c, :] = scale[c] dy[b, c, :]`.

use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::parallel;
use crate::simd::wide;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::Standardize;

/// Returns the elements of the batch, the elements of one channel of a sample, and the scale and shift of each channel.
fn resolve(op: &Standardize, operands: &Operands<'_>) -> Result<(usize, usize, Vec<[f32; 2]>), Error> {
    let inner = count(&[op.inner()]).max(1);
    let lines = op.lines().ok_or(Error::Damaged("there are other numbers to standardise by than channels"))?;
    Ok((count(&[operands.batch(), op.output().elements().unwrap_or(u64::MAX)]), inner, lines))
}

/// Computes `y` from `x`.
pub(in crate::kernels) fn forward(op: &Standardize, operands: &mut Operands<'_>) -> Bound {
    let (length, inner, lines) = resolve(op, operands)?;
    let line = move |plane: usize| lines[plane % lines.len()];
    if op.bytes {
        let x = operands.bytes(Slot::Input(0), length)?;
        let mut y = operands.target(Slot::Output, length)?;
        return kernel(move |_| {
            let x = x.get();
            parallel::pieces(None, y.get(), inner, |plane, _, y| {
                let (x, [scale, shift]) = (&x[plane * inner..][..y.len()], line(plane));
                wide(|| y.iter_mut().zip(x).for_each(|(y, &x)| *y = scale * f32::from(x) + shift));
                0.0
            });
        });
    }
    let x = operands.source(Slot::Input(0), length)?;
    let mut y = operands.target(Slot::Output, length)?;
    kernel(move |_| {
        parallel::pieces(Some(x.get()), y.get(), inner, |plane, x, y| {
            let [scale, shift] = line(plane);
            wide(|| y.iter_mut().zip(x.unwrap_or_default()).for_each(|(y, &x)| *y = scale * x + shift));
            0.0
        });
    })
}

/// Computes `dx` from `dy`. `dx` may overwrite `dy`.
pub(in crate::kernels) fn backward(op: &Standardize, operands: &mut Operands<'_>) -> Bound {
    let (length, inner, lines) = resolve(op, operands)?;
    let (mut pair, accumulate) = operands.gradients(0, length)?;
    kernel(move |_| {
        let (dy, dx) = pair.get();
        parallel::pieces(dy, dx, inner, |plane, dy, dx| {
            let [scale, _] = lines[plane % lines.len()];
            wide(|| match dy {
                None => dx.iter_mut().for_each(|dx| *dx *= scale),
                Some(dy) if accumulate => dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += scale * dy),
                Some(dy) => dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx = scale * dy),
            });
            0.0
        });
    })
}
