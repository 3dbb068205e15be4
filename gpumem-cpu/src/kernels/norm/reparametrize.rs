//! Reparametrised weight: `w = factor * g * n` with `n = (v - mean) * rstd` for each part. Part `p` has the elements `v[a, p, b]`. If parts are
//! not centred, the mean is 0 and `rstd` is computed from the mean square.
//!
//! Backward, with means over the part: `dg = factor * sum of dw * n`, `dv = factor * g * rstd * (dw - mean(dw) - n * mean(dw * n))`, without
//! `mean(dw)` if parts are not centred.

use crate::kernels::norm::batch_norm::inverse_root;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Reparametrize;

/// The sizes and numbers of a reparametrised weight.
#[derive(Clone, Copy)]
struct Parts {
    outer: usize,
    count: usize,
    inner: usize,
    center: bool,
    eps: f64,
    factor: f64,
}

impl Parts {
    fn new(op: &Reparametrize) -> Result<Parts, Error> {
        if !op.is_sound() {
            return Err(Error::Damaged("a weight's parts are not all of it"));
        }
        let [outer, count, inner] = op.sizes.map(|size| count(&[size]));
        Ok(Parts { outer, count, inner, center: op.center, eps: op.eps, factor: op.factor })
    }

    fn length(&self) -> f64 {
        (self.outer * self.inner) as f64
    }

    /// Returns the indices of the elements of a part.
    fn places(self, part: usize) -> impl Iterator<Item = usize> {
        let starts = (0..self.outer).map(move |outer| (outer * self.count + part) * self.inner);
        starts.flat_map(move |start| start..start + self.inner)
    }

    /// Returns the mean and `1 / std` of a part.
    fn statistics(self, v: &[f32], part: usize) -> (f32, f32) {
        let sum: f64 = if self.center { self.places(part).map(|at| f64::from(v[at])).sum() } else { 0.0 };
        let mean = sum / self.length();
        let squares: f64 = self.places(part).map(|at| (f64::from(v[at]) - mean) * (f64::from(v[at]) - mean)).sum();
        (mean as f32, inverse_root(squares / self.length(), self.eps))
    }

    /// Returns the saved statistics of a part.
    fn saved(self, saved: &[f32], part: usize) -> (f32, f32) {
        if self.center { (saved[part], saved[self.count + part]) } else { (0.0, saved[part]) }
    }

    /// Returns the factor of a part.
    fn factor(self, g: Option<&[f32]>, part: usize) -> f32 {
        self.factor as f32 * g.map_or(1.0, |g| g[part])
    }
}

/// Computes the weight, and in training also saves the statistics.
pub(in crate::kernels) fn forward(op: &Reparametrize, operands: &mut Operands<'_>) -> Bound {
    let parts = Parts::new(op)?;
    let length = count(&op.sizes);
    let v = operands.source(Slot::Input(0), length)?;
    let g = operands.source_if(op.scale, Slot::Input(1), parts.count)?;
    let mut weight = operands.target(Slot::Output, length)?;
    let mut saved = operands.target_if_any(Slot::Saved(0), count(&[op.statistics(), op.parts()]))?;
    kernel(move |_| {
        let (v, g, weight) = (v.get(), g.as_ref().map(|g| g.get()), weight.get());
        for part in 0..parts.count {
            let (mean, rstd) = parts.statistics(v, part);
            if let Some(saved) = &mut saved {
                let saved = saved.get();
                if parts.center {
                    (saved[part], saved[parts.count + part]) = (mean, rstd);
                } else {
                    saved[part] = rstd;
                }
            }
            let factor = parts.factor(g, part);
            parts.places(part).for_each(|at| weight[at] = factor * ((v[at] - mean) * rstd));
        }
    })
}

/// Computes the gradients that the operation writes.
pub(in crate::kernels) fn backward(op: &Reparametrize, operands: &mut Operands<'_>) -> Bound {
    let parts = Parts::new(op)?;
    let length = count(&op.sizes);
    let gradient = operands.source(Slot::Gradient, length)?;
    let v = operands.source(Slot::Input(0), length)?;
    let g = operands.source_if(op.scale, Slot::Input(1), parts.count)?;
    let saved = operands.source(Slot::Saved(0), count(&[op.statistics(), op.parts()]))?;
    let mut v_gradient = operands.gradient(Slot::InputGradient(0), length)?;
    let mut g_gradient = operands.gradient(Slot::InputGradient(1), parts.count)?;
    kernel(move |_| {
        let (dw, v, g, saved) = (gradient.get(), v.get(), g.as_ref().map(|g| g.get()), saved.get());
        for part in 0..parts.count {
            let (mean, rstd) = parts.saved(saved, part);
            let normal = |at: usize| (v[at] - mean) * rstd;
            let product: f64 = parts.places(part).map(|at| f64::from(dw[at]) * f64::from(normal(at))).sum();
            if let Some(out) = &mut g_gradient {
                let dg = &mut out.target.get()[part];
                *dg = if out.accumulate { *dg } else { 0.0 } + (parts.factor * product) as f32;
            }
            let Some(out) = &mut v_gradient else { continue };
            let sum: f64 = if parts.center { parts.places(part).map(|at| f64::from(dw[at])).sum() } else { 0.0 };
            let [sum, product] = [sum, product].map(|all| (all / parts.length()) as f32);
            let (factor, dv) = (parts.factor(g, part) * rstd, out.target.get());
            for at in parts.places(part) {
                let before = if out.accumulate { dv[at] } else { 0.0 };
                dv[at] = before + factor * (dw[at] - sum - normal(at) * product);
            }
        }
    })
}
