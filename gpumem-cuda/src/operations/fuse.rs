//! Operations that follow each other and run as one pass over memory.
//!
//! The plan knows nothing of this: it placed the tensors of each operation for themselves. A later operation's output may
//! therefore lie where an earlier one still reads, and such a pair stays apart: see [`are_apart`].

use super::Setting;
use crate::launch::Call;
use gpumem_core::device::Placed;
use gpumem_core::error::Error;
use gpumem_core::program::TensorId;

/// A way to run several operations, from number `first` on, as one: how many, and their calls. `None` where it does not apply.
type Pattern = fn(placed: &Placed, first: usize, setting: Setting) -> Result<Option<(usize, Vec<Call>)>, Error>;

/// All of them, in the order in which they are tried.
const PATTERNS: &[Pattern] = &[];

pub(super) fn fused(placed: &Placed, first: usize, setting: Setting) -> Result<Option<(usize, Vec<Call>)>, Error> {
    for pattern in PATTERNS {
        if let Some(found) = pattern(placed, first, setting)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Whether operations `first` to `first + count - 1` may run as one: nothing that a later one writes lies where an earlier
/// one has a tensor, unless it is that very tensor.
#[allow(dead_code)]
pub(super) fn are_apart(placed: &Placed, first: usize, count: usize) -> bool {
    let Some(group) = placed.program.operations.get(first..first + count) else { return false };
    let range = |id: TensorId| {
        let id = id as usize;
        (placed.offsets[id], placed.offsets[id].saturating_add(placed.bytes[id]))
    };
    let overlap = |a: TensorId, b: TensorId| {
        let ((from, to), (start, end)) = (range(a), range(b));
        a != b && from < end && start < to
    };
    (1..group.len()).all(|later| {
        let earlier = || group[..later].iter().flat_map(|operation| operation.tensors());
        group[later].writes.iter().all(|written| !earlier().any(|tensor| overlap(written.tensor, tensor)))
    })
}
