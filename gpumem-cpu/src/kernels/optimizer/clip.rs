//! Gradient clipping: the norm of all gradients, and the clipped gradients that an update reads.

use super::super::elementwise::dropout::STATE_WORDS;
use super::super::{Bound, kernel};
use super::own_gradient;
use crate::operands::{Operands, Rows};
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
    let gradient = own_gradient(operands)?;
    let there = operands.any_length(Slot::Workspace).unwrap_or(0);
    let (mut sums, own) = match operands.rows_of_ranks(Slot::Workspace)? {
        // Of the sums of shards, a rank writes those of its own.
        Some(Rows { own, .. }) => (operands.target_piece(Slot::Workspace, own)?, own.count as usize),
        None => (operands.target(Slot::Workspace, there)?, there),
    };
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    // All ranks have as many pieces. Those of the last one may be padding.
    let pieces = operands.shard_length(Slot::ParameterGradient)?.div_ceil(PIECE);
    let range = first..first.saturating_add(pieces);
    if range.end > own {
        return Err(Error::Damaged("the squares of a gradient have less memory than they need"));
    }
    kernel(move |_| {
        let sums = &mut sums.get()[range.clone()];
        sums[gradient.get().len().div_ceil(PIECE)..].fill(0.0);
        let pieces = sums.par_iter_mut().zip(gradient.get().par_chunks(PIECE));
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
    // The sums of replicated gradients, and those of the shards of all ranks, each with the elements of a row and those that count.
    let mut sums = Vec::new();
    if operands.reads(Slot::Workspace) {
        let length = operands.length(Slot::Workspace)?;
        sums.push((operands.source(Slot::Workspace, length)?, [length.max(1); 2]));
    }
    if operands.reads(Slot::Input(0)) {
        let Some(Rows { own, pitch, all }) = operands.rows_of_ranks(Slot::Input(0))? else {
            return Err(Error::Damaged("the squares of shards are those of one rank"));
        };
        sums.push((operands.source_piece(Slot::Input(0), all)?, [pitch.max(1), own.count as usize]));
    }
    let mut state = operands.word_target(Slot::State, STATE_WORDS)?;
    kernel(move |_| {
        let rows = sums.iter().flat_map(|(sums, [pitch, own])| sums.get().chunks(*pitch).map(|row| &row[..*own]));
        let squares: f64 = rows.flatten().map(|&root| f64::from(root) * f64::from(root)).sum();
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
