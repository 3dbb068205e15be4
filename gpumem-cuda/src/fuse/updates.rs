//! Fusion of consecutive updates into one launch. Lowering has gathered them.
//!
//! The checks of all gradients become one launch too, in a step that may be skipped. So do the sums of their squares, if they are clipped by their
//! norm.

use super::{Fused, calls, is_apart_from_earlier};
use crate::operations::norm::statistics;
use crate::operations::optimizer::{average, gradient_norm};
use crate::operations::{LaunchContext, optimizer};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::Action;

/// Fuses consecutive updates. A launch runs them in any order, so it ends before an update that writes scratch where an earlier one reads.
pub(super) fn updates(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let rest = &placed.program.operations[first..];
    let count = optimizer::following(rest, &Action::Update);
    let apart = (1..count).find(|&later| !is_apart_from_earlier(placed, first, first + later, None)).unwrap_or(count);
    let rest = if apart < count { &rest[..apart] } else { rest };
    let found = optimizer::updates(placed, rest, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}

pub(super) fn checks(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let found = optimizer::checks(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}

/// Fuses saving running statistics before a step, or restoring them, into one launch.
pub(super) fn statistics(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let found = statistics::all(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}

pub(super) fn averages(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let found = average::all(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}

pub(super) fn squares(placed: &Placed, first: usize, setting: LaunchContext) -> Fused {
    let found = gradient_norm::all_squares(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}
