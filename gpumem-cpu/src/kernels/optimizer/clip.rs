//! Gradient clipping: the norm of all gradients, and the clipped gradients that an update reads.

use super::super::elementwise::dropout::STATE_WORDS;
use super::super::{Bound, kernel};
use crate::operands::Operands;
use gpumem_core::error::Error;
use gpumem_core::program::{Slot, StateWord};
use gpumem_core::train::Clip;
use rayon::prelude::*;

/// Elements whose squares have one mean.
const PIECE: usize = Clip::PIECE as usize;

/// Binds the root mean squares of a gradient's pieces. `first` is the index of the first of them among those of all gradients.
///
/// Squares are added up in double precision, in which none overflows or vanishes.
pub(in super::super) fn squares(first: u64, operands: &mut Operands<'_>) -> Bound {
    let length = operands.length(Slot::ParameterGradient)?;
    let gradient = operands.source(Slot::ParameterGradient, length)?;
    let there = operands.any_length(Slot::Workspace).unwrap_or(0);
    let mut sums = operands.target(Slot::Workspace, there)?;
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    let range = first..first.saturating_add(length.div_ceil(PIECE));
    if range.end > there {
        return Err(Error::Damaged("the squares of a gradient have less memory than they need"));
    }
    kernel(move |_| {
        let pieces = sums.get()[range.clone()].par_iter_mut().zip(gradient.get().par_chunks(PIECE));
        pieces.for_each(|(root, piece)| {
            let sum: f64 = piece.iter().map(|&g| f64::from(g) * f64::from(g)).sum();
            *root = (sum / PIECE as f64).sqrt() as f32;
        });
    })
}

/// Binds the norm of all gradients, from the root mean squares of all pieces.
pub(in super::super) fn norm(operands: &mut Operands<'_>) -> Bound {
    let descent = operands.descent();
    if !descent.needs_norm() {
        return Err(Error::Damaged("a program that needs no norm of gradients has one"));
    }
    let length = operands.length(Slot::Workspace)?;
    let sums = operands.source(Slot::Workspace, length)?;
    let mut state = operands.word_target(Slot::State, STATE_WORDS)?;
    kernel(move |_| {
        let squares: f64 = sums.get().iter().map(|&root| f64::from(root) * f64::from(root)).sum();
        let norm = (squares * PIECE as f64).sqrt();
        let words = state.get();
        words[StateWord::Norm as usize] = (norm as f32).to_bits();
        if let Some(clip @ Clip::GlobalNorm(_)) = descent.clip {
            words[StateWord::Clip as usize] = (clip.factor(norm) as f32).to_bits();
        }
        if descent.skips && !norm.is_finite() {
            words[StateWord::Overflow as usize] = 1;
        }
    })
}

/// The clipping of a gradient.
pub(super) enum Clipped {
    /// Multiplies each element.
    Scaled(f32),
    /// Limits each element to the range from the negative of this number to the number.
    Bounded(f32),
}

impl Clipped {
    /// Returns the clipping for a step with this state.
    pub(super) fn new(clip: Clip, state: &[u32]) -> Clipped {
        match clip {
            Clip::Value(most) => Clipped::Bounded(most as f32),
            _ => Clipped::Scaled(f32::from_bits(state[StateWord::Clip as usize])),
        }
    }

    /// Returns the clipped gradient, in `memory` if it differs. The tensor itself keeps the numbers of the backward pass.
    pub(super) fn of<'m>(&self, gradient: &'m [f32], memory: &'m mut Vec<f32>) -> &'m [f32] {
        if let Clipped::Scaled(1.0) = *self {
            return gradient;
        }
        memory.clear();
        match *self {
            Clipped::Scaled(factor) => memory.extend(gradient.iter().map(|g| g * factor)),
            // A NaN stays NaN.
            Clipped::Bounded(most) => memory.extend(gradient.iter().map(|&g| g.clamp(-most, most))),
        }
        memory
    }
}
