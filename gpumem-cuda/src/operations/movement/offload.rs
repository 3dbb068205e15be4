//! Copies between host memory and the arena: pieces of optimizer state and master copies, and activations.

use crate::calls::host_copy::{Copy, Passage};
use crate::calls::{Argument, Call};
use crate::operations::context::Context;
use crate::operations::optimizer;
use gpumem_core::Format;
use gpumem_core::error::Error;
use gpumem_core::memory::place::on_host;
use gpumem_core::program::{Leg, Piece, Slot};
use gpumem_core::train::optim::Optimizer;

const MISSING: Error = Error::Damaged("a piece of optimizer state has no place");

pub(in crate::operations) fn fetch(context: &Context<'_>, piece: Piece) -> Result<Vec<Call>, Error> {
    let copies = copies(context, piece, |slot| (context.operation.read(slot), context.operation.written(slot)))?;
    Ok(vec![Passage::Fetch { buffer: buffer(piece)?, copies }.into()])
}

pub(in crate::operations) fn update(context: &Context<'_>, piece: Piece) -> Result<Vec<Call>, Error> {
    let launch = optimizer::update_piece(context, piece)?;
    Ok(vec![Passage::Await { buffer: buffer(piece)? }.into(), launch.into()])
}

pub(in crate::operations) fn store(context: &Context<'_>, piece: Piece) -> Result<Vec<Call>, Error> {
    let copies = copies(context, piece, |slot| (context.operation.written(slot), context.operation.read(slot)))?;
    Ok(vec![Passage::Store { buffer: buffer(piece)?, copies }.into()])
}

pub(in crate::operations) fn settle() -> Vec<Call> {
    vec![Passage::Settle.into()]
}

/// Returns the call of one leg of an activation's way to host memory and back.
pub(in crate::operations) fn park(context: &Context<'_>, leg: Leg) -> Result<Vec<Call>, Error> {
    let passage = match leg {
        Leg::Leave => {
            Passage::Leave { copy: whole(context, context.written(Slot::Output)?, context.read(Slot::Input(0))?)? }
        }
        Leg::Left => Passage::Left { host: context.read(Slot::Input(1))? },
        Leg::Return => {
            Passage::Return { copy: whole(context, context.read(Slot::Input(0))?, context.written(Slot::Output)?)? }
        }
        Leg::Returned => Passage::Returned { host: context.read(Slot::Input(0))? },
    };
    Ok(vec![passage.into()])
}

/// Returns the copy of a whole tensor, whose layouts in host memory and in the arena are equal.
fn whole(context: &Context<'_>, host: Argument, arena: Argument) -> Result<Copy, Error> {
    let [there, here] =
        [host, arena].map(|id| (context.placed.offsets[id as usize], context.placed.bytes[id as usize]));
    let is_alike = context.tensor(host).layout == context.tensor(arena).layout && there.1 == here.1;
    if on_host(there.0).is_none() || on_host(here.0).is_some() || !is_alike {
        return Err(Error::Damaged("an activation has no place in host memory that is like its own"));
    }
    Ok(Copy { host, at: 0, arena, bytes: here.1 })
}

fn buffer(piece: Piece) -> Result<usize, Error> {
    usize::try_from(piece.buffer).ok().filter(|&buffer| buffer < Piece::BUFFERS).ok_or(MISSING)
}

/// Returns the copies of a piece: of each optimizer state and of the master copy, if there is one. `sides` returns a slot's tensors in host memory
/// and in the arena.
fn copies(
    context: &Context<'_>,
    piece: Piece,
    sides: impl Fn(Slot) -> (Option<Argument>, Option<Argument>),
) -> Result<Vec<Copy>, Error> {
    let placed = context.placed;
    let parameter = context.read(Slot::Parameter)?;
    // States and master copies have the elements that the rank updates.
    let elements = context.own(parameter);
    let copy = |host: Argument, arena: Argument, each: u64| {
        let bytes = |count: u64| count.checked_mul(each).ok_or(MISSING);
        let there = bytes(piece.end().filter(|&end| end <= elements).ok_or(MISSING)?)?;
        let is_inside = placed.bytes[arena as usize] >= bytes(piece.count)? && there <= bytes(elements)?;
        let copy = Copy { host, at: bytes(piece.first)?, arena, bytes: bytes(piece.count)? };
        if is_inside { Ok(copy) } else { Err(MISSING) }
    };
    let mut copies = Vec::new();
    for slot in (0..Optimizer::MOST_STATES as u8).map(Slot::Moment) {
        let (Some(host), Some(arena)) = sides(slot) else { continue };
        if on_host(placed.offsets[host as usize]).is_none() || context.elements(host) != elements {
            return Err(MISSING);
        }
        copies.push(copy(host, arena, context.tensor(host).role.bytes(context.setting.precision))?);
    }
    let (one, other) = sides(Slot::Master);
    if let (Some(place), Some(arena)) = (placed.masters[parameter as usize], one.or(other)) {
        on_host(place).ok_or(MISSING)?;
        let host = placed.program.tensors.len() as Argument + parameter;
        copies.push(copy(host, arena, Format::F32.bytes())?);
    }
    Ok(copies)
}
