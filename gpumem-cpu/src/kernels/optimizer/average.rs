//! Exponential moving averages of parameters: see `gpumem_core::train::Ema`.

use super::super::elementwise::dropout::{STATE_WORDS, step_and_seed};
use super::super::{Bound, kernel};
use super::elements::PIECE;
use super::shard_piece;
use crate::operands::{Operands, Source, Target};
use gpumem_core::error::Error;
use gpumem_core::program::{Piece, Slot, StateWord};
use gpumem_core::train::Ema;
use rayon::prelude::*;

/// Binds the average of a parameter.
pub(in super::super) fn average(operands: &mut Operands<'_>) -> Bound {
    if let Some(shard) = operands.own_shard(Slot::Average)? {
        let parameter = operands.source_piece(Slot::Parameter, operands.placed(Slot::Parameter, shard, shard))?;
        let average = operands.target_piece(Slot::Average, operands.placed(Slot::Average, shard, shard))?;
        return bound(operands, parameter, average);
    }
    let length = operands.length(Slot::Parameter)?;
    let parameter = operands.source(Slot::Parameter, length)?;
    let average = operands.target(Slot::Average, length)?;
    bound(operands, parameter, average)
}

/// Binds the average of a part of a parameter. A parameter in f32 is its own master copy.
pub(in super::super) fn average_piece(piece: Piece, operands: &mut Operands<'_>) -> Bound {
    let (shard, piece) = match operands.own_shard(Slot::Average)? {
        Some(shard) => (shard, shard_piece(shard, piece)),
        None => (piece, piece),
    };
    let parameter = operands.source_piece(Slot::Parameter, operands.placed(Slot::Parameter, shard, piece))?;
    let average = operands.target_piece(Slot::Average, operands.placed(Slot::Average, shard, piece))?;
    bound(operands, parameter, average)
}

fn bound(operands: &Operands<'_>, parameter: Source, mut average: Target) -> Bound {
    let Some(ema) = operands.descent().ema else {
        return Err(Error::Damaged("a program without moving averages computes some"));
    };
    let state = operands.words(Slot::State, STATE_WORDS)?;
    kernel(move |_| {
        let words = state.get();
        if words[StateWord::Overflow as usize] != 0 || !ema.is_due(step_and_seed(words).0) {
            return;
        }
        let share = ema.share(words[StateWord::Averaged as usize].into()) as f32;
        let pieces = average.get().par_chunks_mut(PIECE).zip(parameter.get().par_chunks(PIECE));
        pieces.for_each(|(average, parameter)| {
            average.iter_mut().zip(parameter).for_each(|(a, &w)| *a = Ema::averaged(*a, w, share));
        });
    })
}
