//! Activations after normalisations that save nothing: their slopes are recomputed from what the normalisation saves.
//!
//! The gradient of an activation reads its output or its input. If no other gradient does, as when only a concatenation or a pool follows a
//! rectifier, a whole map is saved for it. The gradient of the normalisation before it reads the map that came in. A multiplication and an
//! addition compute the activation's input from that map, so that one pass computes the gradients of both.

use super::Analysis;
use crate::graph::{NodeId, Source};
use crate::program::Op;
use crate::program::functions::{Function, Kept};
use crate::program::ops::{BatchNorm, Pointwise};

/// The choice of activations after normalisations that save nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lower) enum Activations {
    /// Those that would keep a map for themselves alone: their input, or an output that no other gradient reads.
    Unread,
    /// All of them. An output that another gradient reads, most often that of a weight, is then freed after that gradient, and is not alive
    /// together with what comes next.
    All,
}

impl Analysis<'_> {
    /// Marks the activations that save nothing. Those would keep a map for themselves alone or, with [`Activations::All`], have outputs that
    /// other gradients read.
    pub(super) fn mark_merged(&mut self, activations: Activations) {
        for id in 0..self.graph.nodes.len() {
            let Some(function) = self.activates(id).filter(|_| self.is_live(id) && self.needs_gradient(id)) else {
                continue;
            };
            let keeps_input = function.row().kept == Kept::Input;
            self.merged[id] = keeps_input || activations == Activations::All || !self.is_asked_for(id);
        }
    }

    /// Returns the function of a node that alone reads the output of a normalisation; `None` for any other node.
    fn activates(&self, id: NodeId) -> Option<Function> {
        let node = self.op(id)?;
        let (function, mut before) = (activation(node.op)?, node.inputs[0]);
        while let Source::View(looked_at) = self.node(before).source {
            before = looked_at;
        }
        // A normalisation with running statistics saves its input only for the gradient of its factors.
        let is_normalised = self.op(before).is_some_and(|node| match node.op {
            Op::BatchNorm(norm) => {
                !norm.eval || node.inputs.get(1).is_some_and(|&factors| self.needs_gradient(factors))
            }
            _ => false,
        });
        (is_normalised && self.only_reader(before) == Some(id)).then_some(function)
    }

    /// Returns the operation whose gradients a node computes. For a normalisation, they may include those of the activation after it.
    pub(in crate::lower) fn differentiated(&self, id: NodeId, op: &Op) -> Op {
        match (op, self.only_reader(id)) {
            (Op::BatchNorm(norm), Some(only)) if self.merged[only] => {
                let activation = self.op(only).and_then(|node| activation(node.op));
                Op::BatchNorm(BatchNorm { activation, ..norm.clone() })
            }
            _ => op.clone(),
        }
    }
}

/// Returns the function of an operation, if its slope can be recomputed; `None` otherwise.
fn activation(op: &Op) -> Option<Function> {
    match op {
        Op::Pointwise(Pointwise { function, .. }) => Some(*function).filter(|function| function.has_slope_of_input()),
        _ => None,
    }
}
