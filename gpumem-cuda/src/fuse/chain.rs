//! Fusion of consecutive elementwise operations over the same elements into one launch: a chain.

use super::{Can, Fused, calls, dies_by, forward_at, overlap, special};
use crate::calls::Launch;
use crate::operations::elementwise::chain::Chain;
use crate::operations::{LaunchContext, is_channels_last, is_dense};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Class, Op, Operation, TensorId};

/// The most operations in a chain. Their intermediate values stay in registers.
const MOST: usize = 8;

/// Returns operation `first` and as many of its successors as fit into one launch; `None` if those are fewer than two.
pub(super) fn chain(placed: &Placed, first: usize, setting: LaunchContext, can: &mut Can<'_>) -> Fused {
    let operations = &placed.program.operations;
    let Some(mut chain) = operations.get(first).and_then(|it| Chain::like(placed, it, setting)) else {
        return Ok(None);
    };
    let mut found = None;
    for (count, operation) in (1..=MOST).zip(&operations[first..]) {
        let last = first + count - 1;
        let is_related = count == 1 || operation.tensors().any(|tensor| chain.has(tensor));
        let completes = is_completed_by(placed, &chain, last);
        if !is_related || !lies(placed, operation) || chain.add(operation).is_none() {
            break;
        }
        if !completes && leads_away(placed, last, setting, can)? {
            break;
        }
        if count > 1
            && let Some(launch) = launch_of(placed, &chain, &Vec::from_iter(first..=last))
        {
            found = Some((count, calls(vec![launch])));
        }
    }
    Ok(found)
}

/// Returns one launch for these operations, given in program order; `None` if they cannot be fused.
pub(super) fn launch(placed: &Placed, operations: &[usize], setting: LaunchContext) -> Option<Launch> {
    let all = operations.iter().map(|&index| &placed.program.operations[index]);
    let mut chain = Chain::like(placed, all.clone().next()?, setting)?;
    if operations.len() > MOST || !all.clone().all(|operation| lies(placed, operation)) {
        return None;
    }
    for operation in all {
        chain.add(operation)?;
    }
    launch_of(placed, &chain, operations)
}

/// Returns the launch of `chain`, which was made from these operations; `None` if its writes and reads overlap.
fn launch_of(placed: &Placed, chain: &Chain<'_>, operations: &[usize]) -> Option<Launch> {
    let mut stored = chain.written().to_vec();
    stored.retain(|&id| is_needed(placed, operations, id));
    if is_clear(placed, chain, &stored) { chain.launch(&stored) } else { None }
}

/// True if an operation outside `operations` reads the tensor that they write.
pub(super) fn is_needed(placed: &Placed, operations: &[usize], id: TensorId) -> bool {
    let (program, Some(&last)) = (&placed.program, operations.last()) else { return true };
    if program.tensor(id).class != Class::Transient || !dies_by(placed, id, last) {
        return true;
    }
    let touches = |index: &usize| program.operations[*index].tensors().any(|tensor| tensor == id);
    let first = operations.iter().copied().find(touches).unwrap_or(0);
    (first..last).any(|index| !operations.contains(&index) && touches(&index))
}

/// True if all tensors of an operation have a layout that a chain supports: dense or channels last.
fn lies(placed: &Placed, operation: &Operation) -> bool {
    is_dense(placed, operation) || is_channels_last(placed, operation)
}

/// True if all these operations are elementwise.
pub(super) fn is_elementwise(placed: &Placed, operations: &[usize], setting: LaunchContext) -> bool {
    operations.iter().all(|&index| {
        let operation = &placed.program.operations[index];
        let chain = Chain::like(placed, operation, setting);
        chain.is_some_and(|mut chain| chain.add(operation).is_some())
    })
}

/// True if an operation is a sum or dropout of a tensor that the chain so far would write for this operation only.
///
/// Fusing it with a normalisation after it would save one read of the sum; the chain saves a write and a read of that tensor.
fn is_completed_by(placed: &Placed, chain: &Chain<'_>, at: usize) -> bool {
    let Some((operation, Op::Sum(_) | Op::Mask(_), output)) = forward_at(placed, at) else { return false };
    let mut inputs = operation.reads.iter().map(|it| it.tensor);
    inputs.any(|input| chain.writes(input) && (input == output || dies_by(placed, input, at)))
}

/// True if an operation is fused with one that is not elementwise, which saves more.
fn leads_away(placed: &Placed, at: usize, setting: LaunchContext, can: &mut Can<'_>) -> Result<bool, Error> {
    let other = special(placed, at, setting, can)?;
    Ok(other.is_some_and(|(count, _)| !is_elementwise(placed, &Vec::from_iter(at..at + count), setting)))
}

/// True if the stored tensors overlap nothing else that the launch touches.
///
/// A tensor may have exactly the place of a loaded one: each thread overwrites only elements that it alone has loaded. That does not hold for a
/// repeated (broadcast) tensor.
fn is_clear(placed: &Placed, chain: &Chain<'_>, stored: &[TensorId]) -> bool {
    let place = |id: TensorId| (placed.offsets[id as usize], placed.bytes[id as usize]);
    stored.iter().all(|&written| {
        let is_apart = |(read, is_repeated): (TensorId, bool)| {
            !(is_repeated && read == written)
                && (!overlap(placed, read, written) || (!is_repeated && place(read) == place(written)))
        };
        chain.loaded().all(is_apart) && stored.iter().all(|&other| !overlap(placed, other, written))
    })
}
