//! Places of tensors in a launch over many of them, and of a rank's shards.

use super::NONE;
use crate::calls::{Argument, Kernel, place};
use crate::operations::context::Context;
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::TensorId;

/// Bytes in which distances between tensors are counted.
const UNIT: u64 = 256;

/// Bytes in which distances are counted on several ranks, whose shards begin at multiples of them: `UNIT` of `multi_tensor.cuh` with `SHARDED`.
const SHARDED_UNIT: u64 = 128;

/// Returns the bytes in which [`own_distances`] are counted.
fn unit(context: &Context<'_>) -> u64 {
    if context.placed.program.descent.ranks.is_alone() { UNIT } else { SHARDED_UNIT }
}

/// Adds to a kernel that distances are those of shards, on several ranks.
pub(super) fn with_shards(kernel: Kernel, context: &Context<'_>) -> Kernel {
    if context.placed.program.descent.ranks.is_alone() { kernel } else { kernel.with("SHARDED", 1) }
}

/// Returns the tensor with the lowest address, and the distance of each from it in units of 256 bytes; `absent` for a missing one.
pub(in crate::operations) fn distances(
    placed: &Placed,
    kind: &[Option<Argument>],
    absent: u32,
) -> Result<(Option<Argument>, Vec<u32>), Error> {
    from_lowest(placed, kind, absent, (UNIT, &|_| Ok(0)))
}

/// Returns the tensor with the lowest address, and the distance from it to the elements of each that this rank updates; `absent` for a missing one.
pub(super) fn own_distances(
    context: &Context<'_>,
    kind: &[Option<Argument>],
    absent: u32,
) -> Result<(Option<Argument>, Vec<u32>), Error> {
    from_lowest(context.placed, kind, absent, (unit(context), &|argument| start(context, argument)))
}

/// Returns the bytes from the beginning of an argument to the elements that this rank updates. Master copies have no others.
fn start(context: &Context<'_>, argument: Argument) -> Result<u64, Error> {
    let is_tensor = (argument as usize) < context.placed.program.tensors.len();
    if is_tensor { context.own_start(argument) } else { Ok(0) }
}

fn from_lowest(
    placed: &Placed,
    kind: &[Option<Argument>],
    absent: u32,
    (unit, start): (u64, &dyn Fn(Argument) -> Result<u64, Error>),
) -> Result<(Option<Argument>, Vec<u32>), Error> {
    let offset = |argument: Argument| place(placed, argument).map(|(offset, _)| offset);
    let offsets = kind.iter().map(|id| id.map(offset).transpose()).collect::<Result<Vec<Option<u64>>, Error>>()?;
    let Some(lowest) = offsets.iter().flatten().min().copied() else {
        return Ok((None, vec![absent; kind.len()]));
    };
    let at = offsets.iter().position(|&offset| offset == Some(lowest));
    let distance = |(&offset, &id): (&Option<u64>, &Option<Argument>)| {
        let Some((offset, id)) = offset.zip(id) else { return Ok(absent) };
        in_units((offset - lowest).saturating_add(start(id)?), unit)
    };
    Ok((at.and_then(|at| kind[at]), offsets.iter().zip(kind).map(distance).collect::<Result<_, _>>()?))
}

/// Returns the distance from a tensor's beginning to element `first` of those that this rank updates.
///
/// # Errors
/// [`Error::Damaged`] if it is no multiple of the bytes in which distances are counted.
pub(super) fn distance_of_piece(context: &Context<'_>, id: TensorId, first: u64) -> Result<u32, Error> {
    let bytes = first.saturating_mul(context.tensor(id).role.bytes(context.setting.precision));
    in_units(bytes.saturating_add(context.own_start(id)?), unit(context))
}

fn in_units(bytes: u64, unit: u64) -> Result<u32, Error> {
    let units = u32::try_from(bytes / unit).ok().filter(|&units| bytes.is_multiple_of(unit) && units < NONE);
    units.ok_or(Error::Damaged("a tensor, or a piece of one, does not begin at a multiple of 256 bytes"))
}
