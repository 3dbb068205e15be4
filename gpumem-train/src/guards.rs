//! Checks around training steps: the end of a schedule, gradient norms for logs, and skipped steps.

use crate::error::{Error, Origin, Result};
use gpumem_core::network::Trains;
use gpumem_core::run::device::Device;
use gpumem_core::run::net::Net;
use gpumem_data::{Batch, Batched};

/// Skipped steps in a row after which a training fails: with so many, the network or its data is broken.
pub(crate) const MOST_SKIPPED: u64 = 100;

/// Sets the `total` of a schedule to the steps of the training, if it is neither in `TRAIN` nor set.
pub(crate) fn end_schedule<N: Trains, D: Device>(net: &mut Net<N, D>, steps: Option<u64>) -> Result<()> {
    if !net.schedule().is_open() {
        return Ok(());
    }
    let Some(steps) = steps else {
        return Err(Error::setting(
            "the schedule in `TRAIN` has no `total`, and nothing says how many steps the training has; give the trainer `.epochs(n)` or \
             `.max_steps(n)`, or call `net.set_total(steps)`",
        ));
    };
    net.set_total(steps).map_err(Error::compute(0))
}

/// Returns the values that `TRAIN` measures in each step, for logs: the norm of gradients, if this run `has_stepped`, and the number of
/// skipped steps.
pub(crate) fn values<N: Trains, D: Device>(
    net: &mut Net<N, D>,
    step: u64,
    has_stepped: bool,
) -> Result<Vec<(String, f64)>> {
    let mut values = Vec::new();
    if net.measures_gradient_norm() && has_stepped {
        values.push(("gradient_norm".to_string(), net.gradient_norm().map_err(Error::compute(step))?));
    }
    if net.skips_non_finite() {
        values.push(("skipped".to_string(), net.skipped().map_err(Error::compute(step))? as f64));
    }
    Ok(values)
}

/// Finds the first tensor of a step that is not finite. The network must be one that such a step does not change.
pub(crate) fn origin<N: Trains, D: Device>(net: &mut Net<N, D>, batch: &Batch<N::Input, N::Target>, step: u64) -> Origin
where
    N::Input: Batched,
    N::Target: Batched,
{
    match net.first_non_finite(&batch.input, &batch.target) {
        Ok(Some(found)) => Origin::Found { tensor: found.to_string(), step },
        Ok(None) => Origin::Vanished,
        Err(error) => Origin::Failed(error.to_string()),
    }
}
