//! Joins of branches: sum, product, and side by side. Outputs of sums and products may overwrite an input.
//!
//! Backward: a sum passes its gradient on and needs no operation; a product has one operation a branch,
//! `dx0 = dy * x1` and `dx1 = dy * x0`; so has a concatenation, which cuts out the branch's part.

use super::activation::elements;
use super::{Bound, kernel};
use crate::operands::{Operands, Source, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::layers;
use gpumem_core::program::Slot;
use rayon::prelude::*;

/// A join's forward and backward pass.
pub(super) trait Join {
    fn forward(&self, operands: &mut Operands<'_>) -> Bound;
    fn backward(&self, operands: &mut Operands<'_>) -> Bound;
}

/// See [`Join`].
pub(super) fn forward(join: &impl Join, operands: &mut Operands<'_>) -> Bound {
    join.forward(operands)
}

/// See [`Join`].
pub(super) fn backward(join: &impl Join, operands: &mut Operands<'_>) -> Bound {
    join.backward(operands)
}

/// Elements of `slot`, which has one sample or as many as the output's `length`.
fn shared(operands: &Operands<'_>, slot: Slot, length: usize) -> Result<usize, Error> {
    let found = operands.length(slot)?;
    let each = length / operands.batch() as usize;
    if found == length || found == each { Ok(found) } else { Err(Error::Damaged("a branch has another shape")) }
}

/// `y = x0 + x1 + ..`; branches that have no batch are added to every sample.
pub(super) struct Add<'a>(pub(super) &'a layers::Add);

impl Join for Add<'_> {
    fn forward(&self, operands: &mut Operands<'_>) -> Bound {
        let length = elements(self.0.shape, operands);
        let branches = u8::try_from(self.0.branches).map_err(|_| Error::Damaged("a sum has over 255 branches"))?;
        // How often the output itself is a branch, and all others.
        let mut own = 0.0f32;
        let mut others: Vec<Source> = Vec::new();
        for slot in (0..branches).map(Slot::Input) {
            if operands.aliases(slot, Slot::Output) {
                own += 1.0;
            } else {
                others.push(operands.source(slot, shared(operands, slot, length)?)?);
            }
        }
        let mut output = operands.target(Slot::Output, length)?;
        kernel(move |_| {
            parallel::pieces(None, output.get(), 1024, |piece, _, y| {
                match own {
                    0.0 => y.fill(0.0),
                    1.0 => {}
                    times => y.iter_mut().for_each(|y| *y *= times),
                }
                for other in &others {
                    add_cyclic(y, other.get(), piece * 1024);
                }
                0.0
            });
        })
    }

    fn backward(&self, _: &mut Operands<'_>) -> Bound {
        Err(Error::Damaged("a sum needs no backward operation, but the program has one"))
    }
}

/// Adds `x`, repeated without end, from element `start` on.
fn add_cyclic(mut y: &mut [f32], x: &[f32], start: usize) {
    let mut at = start % x.len();
    while !y.is_empty() {
        let (head, tail) = y.split_at_mut(y.len().min(x.len() - at));
        head.iter_mut().zip(&x[at..]).for_each(|(y, x)| *y += x);
        (y, at) = (tail, 0);
    }
}

/// `y = x0 * x1`.
pub(super) struct Mul<'a>(pub(super) &'a layers::Mul);

impl Join for Mul<'_> {
    fn forward(&self, operands: &mut Operands<'_>) -> Bound {
        let length = elements(self.0.shape, operands);
        let own = [0, 1].map(|branch| operands.aliases(Slot::Input(branch), Slot::Output));
        if own == [true, true] {
            let mut square = operands.pair(Slot::Input(0), Slot::Output, length)?;
            return kernel(move |_| square.map(false, |_, x| x * x));
        }
        // The branch that the output may overwrite, and the other one.
        let first = u8::from(own[1]);
        let mut pair = operands.pair(Slot::Input(first), Slot::Output, length)?;
        let other = operands.source(Slot::Input(1 - first), length)?;
        kernel(move |_| pair.zip(false, other.get(), |x, other| x * other))
    }

    fn backward(&self, operands: &mut Operands<'_>) -> Bound {
        let length = elements(self.0.shape, operands);
        let branch = operands.branch()?;
        if branch > 1 {
            return Err(Error::Damaged("a product has two branches, but the program names more"));
        }
        let (mut pair, accumulate) = operands.gradients(branch, length)?;
        let other = operands.source(Slot::Input(1 - branch), length)?;
        kernel(move |_| pair.zip(accumulate, other.get(), |dy, other| dy * other))
    }
}

/// Rows of the branches one after the other.
pub(super) struct Concat<'a>(pub(super) &'a layers::Concat);

impl Concat<'_> {
    /// Rows of the batch, and elements of a row of the output.
    fn sizes(&self, operands: &Operands<'_>) -> (usize, usize) {
        let row = self.0.parts.iter().fold(0usize, |sum, &part| sum.saturating_add(count(&[part])));
        (count(&[operands.batch(), self.0.outer]), row)
    }
}

impl Join for Concat<'_> {
    fn forward(&self, operands: &mut Operands<'_>) -> Bound {
        let (rows, row) = self.sizes(operands);
        let parts: Vec<usize> = self.0.parts.iter().map(|&part| count(&[part])).collect();
        let mut inputs: Vec<Source> = Vec::new();
        for (branch, &part) in parts.iter().enumerate() {
            let branch = u8::try_from(branch).map_err(|_| Error::Damaged("a concatenation has over 256 branches"))?;
            inputs.push(operands.source(Slot::Input(branch), rows.saturating_mul(part))?);
        }
        let mut output = operands.target(Slot::Output, rows.saturating_mul(row))?;
        kernel(move |_| {
            output.get().par_chunks_mut(row).enumerate().for_each(|(index, mut y)| {
                for (input, &part) in inputs.iter().zip(&parts) {
                    let (head, tail) = y.split_at_mut(part);
                    head.copy_from_slice(&input.get()[index * part..][..part]);
                    y = tail;
                }
            });
        })
    }

    fn backward(&self, operands: &mut Operands<'_>) -> Bound {
        let (rows, row) = self.sizes(operands);
        let branch = operands.branch()?;
        let (before, from) = self.0.parts.split_at_checked(usize::from(branch)).unwrap_or_default();
        let &part = from.first().ok_or(Error::Damaged("a concatenation's gradient names a branch too many"))?;
        let (start, part) = (before.iter().fold(0, |sum, &part| count(&[part]).saturating_add(sum)), count(&[part]));
        let gradient = operands.source(Slot::Gradient, rows.saturating_mul(row))?;
        let out = operands.gradient(Slot::InputGradient(branch), rows.saturating_mul(part))?;
        let mut out = out.ok_or(Error::Damaged("a backward operation writes no gradient"))?;
        kernel(move |_| {
            let (dy, accumulate) = (gradient.get(), out.accumulate);
            parallel::pieces(None, out.target.get(), part, |index, _, dx| {
                let dy = &dy[index * row + start..][..part];
                parallel::store(dx, accumulate, |i| dy[i]);
                0.0
            });
        })
    }
}
