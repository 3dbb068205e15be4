//! Recomputation: values of the forward pass that are computed a second time for the backward pass instead of being kept.
//!
//! A decision is an order in which the operations of a training step run, forward ones maybe more than once. [`apply`](apply::apply) derives
//! tensors and live ranges from it. No number changes: an operation that runs again computes what it computed before, from equal operands. A
//! normalisation reads the statistics that it saved, and leaves the running ones alone. Dropout draws an equal mask, since draws depend on the
//! step, the layer and the element.
//!
//! The search for levels has stages. `values` names the results of forward operations, and `segments` cuts the forward pass into segments. `ways`
//! lists the options of each segment, and `alone` measures them. `labels` combines options by dynamic programming, with `prune`. `emit` turns a
//! combination into an order, whose bytes and time `measure` counts. `levels` chooses among orders, and `polish` improves them.

mod apply;
mod by_hand;
mod emit;
mod label;
mod levels;
mod local_search;
mod measure;
mod operation_effects;
mod pareto;
mod segment_cost;
mod segment_dp;
mod segment_options;
mod segments;
#[cfg(test)]
mod tests;
mod values;

pub use levels::{RecomputeLevel, Search};
pub(in crate::lower) use measure::{costs, time_again};

use crate::graph::Graph;
use crate::lower::draft::Draft;
use crate::lower::sizes::Sizes;
use emit::StepEffects;

/// Returns the step in this order. Without an order, returns the step that recomputes the graph's groups. `None` if the order is not one of the
/// step's operations.
pub(in crate::lower) fn recomputed(draft: Draft, graph: &Graph, order: Option<&[u32]>) -> Option<Draft> {
    if order.is_none() && graph.groups.is_empty() {
        return Some(draft);
    }
    let step = StepEffects::of(&draft)?;
    match order {
        Some(order) => apply::apply(&draft, &step.values, order),
        None => {
            let choices = by_hand::choices(&draft, &step.values, graph);
            apply::apply(&draft, &step.values, &emit::order(&step, &choices))
        }
    }
}

/// Searches the levels of a step; `None` if not all of its forward operations come first.
pub(in crate::lower) fn searched(draft: &Draft, graph: &Graph, setting: &Sizes) -> Option<Search> {
    let step = StepEffects::of(draft)?;
    let written = by_hand::choices(draft, &step.values, graph);
    Some(levels::search(draft, &step, &written, setting))
}
