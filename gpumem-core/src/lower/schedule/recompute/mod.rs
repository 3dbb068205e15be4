//! Recomputation: values of the forward pass that are computed a second time for the backward pass instead of being kept.
//!
//! A decision is an order in which the operations of a training step run, forward ones maybe more than once. [`apply`](apply::apply) derives
//! tensors and live ranges from it. No number changes: an operation that runs again computes what it computed before, from equal operands. A
//! normalisation reads the statistics that it saved, and leaves the running ones alone. Dropout draws an equal mask, since draws depend on the
//! step, the layer and the element.
//!
//! The search for levels goes from file to file. `values` names the results of forward operations, and `segments` cuts the forward pass into
//! segments. `segment_options` lists the options of each segment, and `segment_cost` measures them. `segment_dp` combines options to labels by
//! dynamic programming, and `pareto` says which labels are carried on. `emit` turns a combination into an order, whose bytes and time `measure`
//! counts. `levels` chooses among orders, and `local_search` improves them. `parking` counts kept values that are in host memory in between, and
//! `away` says which of them are worth it.

mod apply;
mod away;
mod by_hand;
mod emit;
mod label;
mod levels;
mod local_search;
mod measure;
mod operation_effects;
mod pareto;
mod parking;
mod segment_cost;
mod segment_dp;
mod segment_options;
mod segments;
#[cfg(test)]
mod tests;
mod values;

pub(in crate::lower) use levels::spread;
pub use levels::{RecomputeLevel, Search};
pub(in crate::lower) use measure::{costs, step_time, time_again};

use crate::graph::Graph;
use crate::lower::draft::Draft;
use crate::lower::options::LowerError;
use crate::lower::sizes::Sizes;
use alloc::vec::Vec;
use emit::StepEffects;

/// Returns the step in this order.
///
/// # Errors
/// An order that is not one of the step's operations.
pub(in crate::lower) fn in_order(draft: &Draft, order: &[u32]) -> Result<Draft, LowerError> {
    let applied = StepEffects::of(draft).and_then(|step| apply::apply(draft, &step.values, order));
    applied.ok_or_else(is_of_another)
}

/// Returns the step in each of several orders.
///
/// # Errors
/// Those of [`in_order`].
pub(in crate::lower) fn in_orders<'o>(
    draft: &Draft,
    orders: impl Iterator<Item = &'o [u32]>,
) -> Result<Vec<Draft>, LowerError> {
    let step = StepEffects::of(draft).ok_or_else(is_of_another)?;
    orders.map(|order| apply::apply(draft, &step.values, order).ok_or_else(is_of_another)).collect()
}

fn is_of_another() -> LowerError {
    LowerError::of_all("the order of its operations is that of another network")
}

/// Returns the step that recomputes the groups which the network's text marks.
///
/// # Errors
/// A step whose forward operations do not all come first.
pub(in crate::lower) fn groups(draft: Draft, graph: &Graph) -> Result<Draft, LowerError> {
    if graph.groups.is_empty() {
        return Ok(draft);
    }
    let applied = StepEffects::of(&draft).and_then(|step| {
        let choices = by_hand::choices(&draft, &step.values, graph);
        apply::apply(&draft, &step.values, &emit::order(&step, &choices))
    });
    applied.ok_or_else(forward_is_late)
}

/// Searches the levels of a step. With `parks`, kept values may be in host memory between the passes.
///
/// # Errors
/// A step whose forward operations do not all come first.
pub(in crate::lower) fn searched(
    draft: &Draft,
    graph: &Graph,
    setting: &Sizes,
    parks: bool,
) -> Result<Search, LowerError> {
    let step = StepEffects::of(draft).ok_or_else(forward_is_late)?;
    let written = by_hand::choices(draft, &step.values, graph);
    Ok(levels::search(draft, &step, &written, setting, parks))
}

fn forward_is_late() -> LowerError {
    LowerError::of_all("the forward pass is not over before the loss")
}
