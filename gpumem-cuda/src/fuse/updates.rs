//! Updates that follow each other in one launch, as lowering gathers them. Before them, in a step that may be skipped, the looks at
//! all gradients, and where these are clipped by their norm, the squares of all.

use super::{Fused, calls, is_apart_from_earlier};
use crate::operations::{Setting, average, norm, optimizer, statistics};
use gpumem_core::memory::place::Placed;
use gpumem_core::program::Action;

/// A launch takes updates in an order of its own: it ends before one that writes scratch memory where an earlier one reads.
pub(super) fn updates(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let rest = &placed.program.operations[first..];
    let count = optimizer::following(rest, &Action::Update);
    let apart = (1..count).find(|&later| !is_apart_from_earlier(placed, first, first + later, None)).unwrap_or(count);
    let rest = if apart < count { &rest[..apart] } else { rest };
    let found = optimizer::updates(placed, rest, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}

pub(super) fn checks(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let found = optimizer::checks(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}

/// Running statistics that are saved before a step, or put back, in one launch.
pub(super) fn statistics(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let found = statistics::all(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}

pub(super) fn averages(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let found = average::all(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}

pub(super) fn squares(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let found = norm::all_squares(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}
