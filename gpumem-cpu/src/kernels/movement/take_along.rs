//! Elements along an axis by indices, and elements that are added by indices: `[i, c, j]` and `[i, index[i, c, j], j]`, where i and j are
//! positions before and after the axis.

use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, Source, Target, count};
use crate::parallel;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::TakeAlong;

/// Lengths of a block, which is all at one position before the axis.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Blocks {
    /// Elements of the indexed side along the axis.
    length: usize,
    /// Indices along the axis.
    count: usize,
    /// Positions after the axis.
    inner: usize,
    /// Elements of the indexed side, and of the other, in the whole batch.
    pub(in crate::kernels) all: [usize; 2],
}

impl Blocks {
    /// Lengths along an axis with positions before it, elements and positions after it.
    pub(in crate::kernels) fn new([outer, length, inner]: [u64; 3], indices: u64, operands: &Operands<'_>) -> Blocks {
        let blocks = operands.batch().saturating_mul(outer);
        let all = [count(&[blocks, length, inner]), count(&[blocks, indices, inner])];
        Blocks { length: count(&[length]), count: count(&[indices]), inner: count(&[inner]), all }
    }

    /// `y[i, c, j] = x[i, index[i, c, j], j]`, or that added to y. An index beyond the axis gives NaN.
    pub(in crate::kernels) fn take(self, x: &[f32], index: &[u32], y: &mut [f32], accumulate: bool) {
        let Blocks { length, count, inner, .. } = self;
        parallel::pieces(None, y, count * inner, |block, _, y| {
            let (x, index) = (&x[block * length * inner..][..length * inner], &index[block * count * inner..]);
            parallel::store(y, accumulate, |at| match index[at] as usize {
                place if place < length => x[place * inner + at % inner],
                _ => f32::NAN,
            });
            0.0
        });
    }

    /// Adds `src[i, c, j]` to `y[i, index[i, c, j], j]` in the order of c, after `begin` has made a block of y. An index beyond the axis
    /// adds nothing.
    pub(in crate::kernels) fn add(
        self,
        src: &[f32],
        index: &[u32],
        y: &mut [f32],
        begin: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        let Blocks { length, count, inner, .. } = self;
        parallel::pieces(None, y, length * inner, |block, _, y| {
            begin(block * length * inner, y);
            let own = block * count * inner..(block + 1) * count * inner;
            for (at, (&place, src)) in index[own.clone()].iter().zip(&src[own]).enumerate() {
                if (place as usize) < length {
                    y[place as usize * inner + at % inner] += src;
                }
            }
            0.0
        });
    }
}

fn resolve(op: &TakeAlong, operands: &Operands<'_>) -> Result<Blocks, Error> {
    if !op.is_sound() {
        return Err(Error::Damaged("elements are taken along no axis"));
    }
    Ok(Blocks::new(op.extents(), op.count, operands))
}

/// `y` from `x` and the indices.
pub(in crate::kernels) fn forward(op: &TakeAlong, operands: &mut Operands<'_>) -> Bound {
    let blocks = resolve(op, operands)?;
    let [elements, indices] = blocks.all;
    let input: Source = operands.source(Slot::Input(0), elements)?;
    let places = operands.words(Slot::Input(1), indices)?;
    let mut output: Target = operands.target(Slot::Output, indices)?;
    kernel(move |_| blocks.take(input.get(), places.get(), output.get(), false))
}

/// `dx` from `dy` and the indices.
pub(in crate::kernels) fn backward(op: &TakeAlong, operands: &mut Operands<'_>) -> Bound {
    let blocks = resolve(op, operands)?;
    let [elements, indices] = blocks.all;
    let gradient = operands.source(Slot::Gradient, indices)?;
    let places = operands.words(Slot::Input(1), indices)?;
    let out = operands.gradient(Slot::InputGradient(0), elements)?;
    let mut out = out.ok_or(Error::Damaged("a backward operation writes no gradient"))?;
    kernel(move |_| {
        let accumulate = out.accumulate;
        blocks.add(gradient.get(), places.get(), out.target.get(), |_, dx| {
            if !accumulate {
                dx.fill(0.0);
            }
        });
    })
}
