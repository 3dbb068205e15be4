//! Adam with 8-bit states: see `gpumem_core::number::dynamic_8bit`. One block at a time is decoded to f32, updated, and encoded again.

use super::elements::{PIECE, Rule};
use crate::operands::{Operands, Target, count};
use crate::simd::{Loop, wide};
use gpumem_core::Role;
use gpumem_core::error::Error;
use gpumem_core::number::dynamic_8bit::{BLOCK, DynamicMap, scale};
use gpumem_core::program::Slot;
use gpumem_core::shape::Shape;
use gpumem_core::train::optim::{AdamW8bit, extent_of};
use rayon::prelude::*;

const LENGTH: usize = BLOCK as usize;
/// Blocks of a piece.
const BLOCKS: usize = PIECE / LENGTH;

/// The codes and scales of both states.
pub(super) struct Codes {
    codes: [Target<u8>; 2],
    scales: [Target; 2],
}

impl Codes {
    /// Returns the codes for a parameter of this shape. `None` if the program keeps its states in another format.
    pub(super) fn bind(operands: &mut Operands<'_>, shape: Shape) -> Result<Option<Codes>, Error> {
        let moments = operands.moments();
        let kept =
            |index: u8| extent_of(moments, index.into()).tensor(shape).map(|(shape, role)| (count(shape.dims()), role));
        let (Some((length, Role::Code)), Some((_, Role::Code))) = (kept(0), kept(1)) else { return Ok(None) };
        let (Some((blocks, Role::WideMoment)), Some((_, Role::WideMoment))) = (kept(2), kept(3)) else {
            return Err(Error::Damaged("codes of an optimizer state have no scales"));
        };
        let codes = [operands.byte_target(Slot::Moment(0), length)?, operands.byte_target(Slot::Moment(1), length)?];
        let scales = [operands.target(Slot::Moment(2), blocks)?, operands.target(Slot::Moment(3), blocks)?];
        Ok(Some(Codes { codes, scales }))
    }

    /// Updates all elements.
    pub(super) fn change(&mut self, rule: &impl Rule<2>, w: &mut [f32], gradient: &[f32]) {
        let [m, v] = self.codes.each_mut().map(|codes| codes.get().par_chunks_mut(PIECE));
        let [of_m, of_v] = self.scales.each_mut().map(|scales| scales.get().par_chunks_mut(BLOCKS));
        let pieces = w.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE)).zip(m.zip(v)).zip(of_m.zip(of_v));
        pieces.for_each(|(((w, gradient), (m, v)), (of_m, of_v))| {
            wide(RuleOverBlocks { rule, w, gradient, codes: [m, v], scales: [of_m, of_v] });
        });
    }
}

/// An update of the elements of whole blocks.
struct RuleOverBlocks<'a, R> {
    rule: &'a R,
    w: &'a mut [f32],
    gradient: &'a [f32],
    codes: [&'a mut [u8]; 2],
    scales: [&'a mut [f32]; 2],
}

impl<R: Rule<2>> Loop for RuleOverBlocks<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let [m, v] = self.codes.map(|codes| codes.chunks_mut(LENGTH));
        let [of_m, of_v] = self.scales.map(|scales| scales.iter_mut());
        let elements = self.w.chunks_mut(LENGTH).zip(self.gradient.chunks(LENGTH));
        for (((w, gradient), (m, v)), (of_m, of_v)) in elements.zip(m.zip(v)).zip(of_m.zip(of_v)) {
            let [mut first, mut second] = [[0.0; LENGTH]; 2];
            let (first, second) = (&mut first[..w.len()], &mut second[..w.len()]);
            let [signed, unsigned] = AdamW8bit::MAPS;
            decode(signed, m, *of_m, first);
            decode(unsigned, v, *of_v, second);
            for ((w, &gradient), (m, v)) in w.iter_mut().zip(gradient).zip(first.iter_mut().zip(second.iter_mut())) {
                self.rule.change(w, gradient, [m, v]);
            }
            *of_m = encode(signed, first, m);
            *of_v = encode(unsigned, second, v);
        }
    }
}

#[inline(always)]
fn decode(map: &DynamicMap, codes: &[u8], scale: f32, to: &mut [f32]) {
    to.iter_mut().zip(codes).for_each(|(to, &code)| *to = map.decode(code) * scale);
}

/// Encodes a block, and returns its scale.
#[inline(always)]
fn encode(map: &DynamicMap, block: &[f32], codes: &mut [u8]) -> f32 {
    let scale = scale(block);
    codes.iter_mut().zip(block).for_each(|(code, x)| *code = map.encode(x / scale));
    scale
}
