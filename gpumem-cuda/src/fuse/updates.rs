//! Updates that follow each other in one launch, as lowering gathers them. Before them, in a step that may be skipped, the looks at
//! all gradients.

use super::{Fused, calls};
use crate::operations::{Setting, optimizer};
use gpumem_core::memory::place::Placed;

pub(super) fn updates(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let found = optimizer::updates(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}

pub(super) fn checks(placed: &Placed, first: usize, setting: Setting) -> Fused {
    let found = optimizer::checks(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, calls(launches))))
}
