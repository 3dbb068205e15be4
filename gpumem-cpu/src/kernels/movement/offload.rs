//! Copies between host memory and the arena. On the CPU both are in one allocation, so each copy ends before the next operation begins.

use crate::kernels::{Bound, kernel, movement};
use crate::operands::{Operands, Source, Target};
use gpumem_core::error::Error;
use gpumem_core::program::{Leg, Piece, Slot};
use gpumem_core::train::optim::Optimizer;

/// Binds the copy of a part of a parameter's optimizer state into the arena.
pub(in crate::kernels) fn fetch(piece: Piece, operands: &mut Operands<'_>) -> Bound {
    copy(operands, piece, Piece { first: 0, ..piece })
}

/// Binds the copy of the state back to host memory.
pub(in crate::kernels) fn store(piece: Piece, operands: &mut Operands<'_>) -> Bound {
    copy(operands, Piece { first: 0, ..piece }, piece)
}

/// Binds the wait for copies, which is empty, because none is in flight.
pub(in crate::kernels) fn settle() -> Bound {
    kernel(|_| {})
}

/// Binds a copy of an activation to host memory or back, or the wait for such a copy.
pub(in crate::kernels) fn park(leg: Leg, operands: &mut Operands<'_>) -> Bound {
    match leg {
        Leg::Leave | Leg::Return => movement::copy(operands),
        Leg::Left | Leg::Returned => settle(),
    }
}

/// Binds copies of all states that are read, each to the state of the same number that is written.
fn copy(operands: &mut Operands<'_>, from: Piece, to: Piece) -> Bound {
    let slots = (0..Optimizer::MOST_STATES as u8).map(Slot::Moment).filter(|&slot| operands.reads(slot));
    let slots: Vec<Slot> = slots.collect();
    let mut copies: Vec<(Source, Target)> = slots
        .into_iter()
        .map(|slot| Ok((operands.source_piece(slot, from)?, operands.target_piece(slot, to)?)))
        .collect::<Result<_, Error>>()?;
    kernel(move |_| copies.iter_mut().for_each(|(from, to)| to.get().copy_from_slice(from.get())))
}
