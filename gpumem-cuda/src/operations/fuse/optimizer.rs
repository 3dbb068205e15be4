//! Updates that follow each other in one launch: all of a training step whose gradients are held until its end.

use super::super::{Setting, optimizer};
use crate::launch::Call;
use gpumem_core::device::Placed;
use gpumem_core::error::Error;

pub(super) fn updates(placed: &Placed, first: usize, setting: Setting) -> Result<Option<(usize, Vec<Call>)>, Error> {
    let found = optimizer::updates(placed, first, setting)?;
    Ok(found.map(|(count, launches)| (count, launches.into_iter().map(Call::from).collect())))
}
