//! Activations that keep nothing: behind a normalisation, their slopes are computed again from what that keeps.
//!
//! An activation's gradient reads its output or its input. Where nothing else does, as where only a concatenation or a pool follows a
//! rectifier, a whole map is held for that. The gradient of the normalisation before it reads the map that came in, from which a
//! multiplication and an addition say the same: one pass then makes the gradients of both.

use super::builder::Builder;
use crate::graph::{NodeId, Source};
use crate::program::Op;
use crate::program::function::{Function, Kept};
use crate::program::ops::{BatchNorm, Pointwise};

/// The activations behind normalisations that keep nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activations {
    /// Those that would keep a map for themselves alone: their input, or an output that no other gradient reads.
    Unread,
    /// All. What another gradient reads, that of a weight most often, is then gone when that is made, and not held beside what comes next.
    All,
}

impl Builder<'_> {
    /// Finds the activations that would keep a map for themselves alone, or those as well whose outputs other gradients read.
    pub(super) fn mark_merged(&mut self, activations: Activations) {
        for id in 0..self.graph.nodes.len() {
            let Some(function) = self.activates(id).filter(|_| self.is_live(id) && self.needs_gradient(id)) else {
                continue;
            };
            let keeps_input = function.row().kept == Kept::Input;
            self.merged[id] = keeps_input || activations == Activations::All || !self.is_asked_for(id);
        }
    }

    /// The function in a node that alone reads what a normalisation gives.
    fn activates(&self, id: NodeId) -> Option<Function> {
        let node = self.op(id)?;
        let (function, mut before) = (activation(node.op)?, node.inputs[0]);
        while let Source::View(looked_at) = self.node(before).source {
            before = looked_at;
        }
        // A normalisation by running statistics keeps its input for the gradient of its factors alone.
        let is_normalised = self.op(before).is_some_and(|node| match node.op {
            Op::BatchNorm(norm) => {
                !norm.eval || node.inputs.get(1).is_some_and(|&factors| self.needs_gradient(factors))
            }
            _ => false,
        });
        (is_normalised && self.only_reader(before) == Some(id)).then_some(function)
    }

    /// The node that reads a value, under whatever shape, if nothing else does.
    pub(super) fn only_reader(&self, id: NodeId) -> Option<NodeId> {
        let &[only] = self.consumers[id].as_slice() else { return None };
        match self.node(only).source {
            _ if self.ends.contains(&id) => None,
            Source::View(_) => self.only_reader(only),
            _ => Some(only),
        }
    }

    /// Whether another gradient reads a value, under whatever shape.
    pub(super) fn is_asked_for(&self, id: NodeId) -> bool {
        self.consumers[id].iter().any(|&reader| {
            let is_view = matches!(self.node(reader).source, Source::View(_));
            self.reads_input(reader, id) || (is_view && self.is_asked_for(reader))
        })
    }

    /// What computes the gradients of a node: of a normalisation, maybe those of the activation behind it, too.
    pub(super) fn differentiated(&self, id: NodeId, op: &Op) -> Op {
        match (op, self.only_reader(id)) {
            (Op::BatchNorm(norm), Some(only)) if self.merged[only] => {
                let activation = self.op(only).and_then(|node| activation(node.op));
                Op::BatchNorm(BatchNorm { activation, ..norm.clone() })
            }
            _ => op.clone(),
        }
    }
}

/// The function that an operation is, if its slope can be computed again.
fn activation(op: &Op) -> Option<Function> {
    match op {
        Op::Pointwise(Pointwise { function, .. }) => Some(*function).filter(|function| function.has_slope_of_input()),
        _ => None,
    }
}
