//! Fusion of consecutive updates into one launch. Lowering has gathered them.
//!
//! The checks of all gradients become one launch too, in a step that may be skipped. So do the sums of their squares, if they are clipped by their
//! norm.

use super::{Fused, calls, is_apart_from_earlier};
use crate::calls::Launch;
use crate::operations::norm::statistics;
use crate::operations::optimizer::{average, gradient_norm};
use crate::operations::{LaunchContext, optimizer};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::fusion::Group;

/// Returns the calls of these launches, after the number of fused operations.
fn with_calls(found: Option<(usize, Vec<Launch>)>) -> Fused {
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}

/// Fuses the updates of a group. A launch runs them in any order, so it ends before an update that writes scratch where an earlier one reads.
pub(super) fn updates(placed: &Placed, group: Group, setting: LaunchContext) -> Fused {
    let Group { first, count, .. } = group;
    let apart = (1..count).find(|&later| !is_apart_from_earlier(placed, first, first + later, None));
    let rest = &placed.program.operations[first..];
    with_calls(optimizer::updates(placed, apart.map_or(rest, |apart| &rest[..apart]), setting)?)
}

pub(super) fn checks(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    with_calls(optimizer::checks(placed, first, setting)?)
}

/// Fuses saving running statistics before a step, or restoring them, into one launch.
pub(super) fn statistics(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    with_calls(statistics::all(placed, first, setting)?)
}

pub(super) fn averages(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    with_calls(average::all(placed, first, setting)?)
}

pub(super) fn squares(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    with_calls(gradient_norm::all_squares(placed, first, setting)?)
}
