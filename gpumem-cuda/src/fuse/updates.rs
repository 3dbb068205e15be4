//! Updates that follow each other in one launch, as lowering gathers them. Before them, in a step that may be skipped, the looks at
//! all gradients, and where these are clipped by their norm, the squares of all.

use super::{Fused, calls};
use crate::operations::{Setting, norm, optimizer};
use gpumem_core::memory::place::Placed;

pub(super) fn updates(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let found = optimizer::updates(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}

pub(super) fn checks(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let found = optimizer::checks(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}

pub(super) fn squares(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let found = norm::all_squares(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}
