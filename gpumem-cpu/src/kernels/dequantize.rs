//! A weight from its codes and their scales.

use super::{Bound, kernel};
use crate::operands::{Operands, count};
use crate::simd::{Loop, wide};
use gpumem_core::error::Error;
use gpumem_core::number::Coding;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Dequantize;
use rayon::prelude::*;

/// Elements of a piece: whole blocks of every coding.
const PIECE: usize = 1 << 12;

pub(super) fn forward(op: &Dequantize, operands: &mut Operands<'_>) -> Bound {
    let coding = op.coding;
    let sizes = op.sizes().ok_or(Error::Damaged("a weight that is kept in codes has no elements"))?;
    let [bytes, blocks] = sizes.map(|size| count(&[size]));
    let codes = operands.bytes(Slot::Input(0), bytes)?;
    let scales = operands.source(Slot::Input(1), blocks)?;
    let mut weight = operands.target(Slot::Output, count(op.shape.dims()))?;
    let [of_codes, of_scales] = [coding.packed(), coding.block()].map(|each| PIECE / each as usize);
    kernel(move |_| {
        let weight = weight.get().par_chunks_mut(PIECE);
        let coded = codes.get().par_chunks(of_codes).zip(scales.get().par_chunks(of_scales));
        weight.zip(coded).for_each(|(weight, (codes, scales))| wide(Piece { coding, codes, scales, weight }));
    })
}

/// Some blocks.
struct Piece<'a> {
    coding: Coding,
    codes: &'a [u8],
    scales: &'a [f32],
    weight: &'a mut [f32],
}

impl Loop for Piece<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.coding.dequantize(self.codes, self.scales, self.weight);
    }
}
