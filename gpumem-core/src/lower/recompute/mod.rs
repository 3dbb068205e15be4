//! Recomputation: values of the forward pass that are not kept for the backward pass, but computed a second time.
//!
//! A decision is an order in which the operations of one training step run, forward ones maybe more than once: [`apply`](apply::apply)
//! derives tensors and lifetimes from it. No number changes. An operation that runs again computes what it computed before, from the
//! same operands: a normalisation reads the statistics that it saved, and leaves the running ones alone; dropout draws the same, as draws
//! depend on the step, the layer and the element.

mod apply;
mod emit;
mod groups;
mod values;

use crate::graph::{Graph, NodeId};
use crate::program::{Operation, Tensor, TensorId};
use alloc::vec::Vec;
use values::Values;

/// A training step before its updates are gathered and its tensors are sorted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Draft {
    pub(super) tensors: Vec<Tensor>,
    pub(super) operations: Vec<Operation>,
    /// What is read after the last operation.
    pub(super) results: Vec<TensorId>,
    pub(super) input_gradients: Vec<TensorId>,
    /// The node that each forward operation computes.
    pub(super) nodes: Vec<NodeId>,
}

/// The step in this order, or where there is none, the one in which what the graph's groups compute is computed again. `None` for what is
/// no order of its operations.
pub(super) fn recomputed(draft: Draft, graph: &Graph, order: Option<&[u32]>) -> Option<Draft> {
    if order.is_none() && graph.groups.is_empty() {
        return Some(draft);
    }
    let values = Values::of(&draft)?;
    match order {
        Some(order) => apply::apply(&draft, &values, order),
        None => {
            let choices = groups::choices(&draft, &values, graph);
            apply::apply(&draft, &values, &emit::order(&draft, &values, &choices))
        }
    }
}
