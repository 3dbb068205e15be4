//! Recomputation: values of the forward pass that are not kept for the backward pass, but computed a second time.
//!
//! A decision is an order in which the operations of one training step run, forward ones maybe more than once: [`apply`](apply::apply)
//! derives tensors and lifetimes from it. No number changes. An operation that runs again computes what it computed before, from the
//! same operands: a normalisation reads the statistics that it saved, and leaves the running ones alone; dropout draws the same, as draws
//! depend on the step, the layer and the element.

mod alone;
mod apply;
mod emit;
mod groups;
mod labels;
mod levels;
mod measure;
mod polish;
mod prune;
mod runs;
mod segments;
#[cfg(test)]
mod tests;
mod values;
mod ways;

pub(super) use apply::reorder;
pub use levels::{Level, Search};
pub use measure::Setting;
pub(super) use measure::costs;

use crate::graph::{Graph, NodeId};
use crate::program::{Operation, Tensor, TensorId};
use alloc::vec::Vec;
use emit::Step;

/// A training step before its updates are gathered and its tensors are sorted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Draft {
    pub(super) tensors: Vec<Tensor>,
    pub(super) operations: Vec<Operation>,
    /// What is read after the last operation.
    pub(super) results: Vec<TensorId>,
    pub(super) input_gradients: Vec<TensorId>,
    /// The node whose value each operation computes, or hands a gradient on from.
    pub(super) nodes: Vec<NodeId>,
    /// Normalisations of the forward pass which, where they run again, find their input in front of another tensor.
    pub(super) fronts: Vec<Front>,
}

/// An operation's first input in front of another tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Front {
    /// The forward operation.
    pub(super) operation: u32,
    /// The tensor whose first channels are its input.
    pub(super) tensor: TensorId,
}

/// The step in this order, or where there is none, the one in which what the graph's groups compute is computed again. `None` for what is
/// no order of its operations.
pub(super) fn recomputed(draft: Draft, graph: &Graph, order: Option<&[u32]>) -> Option<Draft> {
    if order.is_none() && graph.groups.is_empty() {
        return Some(draft);
    }
    let step = Step::of(&draft)?;
    match order {
        Some(order) => apply::apply(&draft, &step.values, order),
        None => {
            let choices = groups::choices(&draft, &step.values, graph);
            apply::apply(&draft, &step.values, &emit::order(&step, &choices))
        }
    }
}

/// The levels of a step; `None` if not all of its forward operations come first.
pub(super) fn searched(draft: &Draft, graph: &Graph, setting: &Setting) -> Option<Search> {
    let step = Step::of(draft)?;
    let written = groups::choices(draft, &step.values, graph);
    Some(levels::search(draft, &step, &written, setting))
}
