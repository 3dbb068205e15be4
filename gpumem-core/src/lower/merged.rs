//! Rectifiers that keep nothing: behind a normalisation, what was cut off is computed again from what that keeps.
//!
//! A rectifier's gradient reads its output. Where nothing else does, as where only a concatenation or a pool follows, a whole map is held
//! for one bit of each element. The gradient of the normalisation before it reads the map that came in, from which a multiplication and an
//! addition say the same: one pass then makes the gradients of both.

use super::builder::Builder;
use crate::graph::{NodeId, Source};
use crate::program::Op;
use crate::program::function::Function;
use crate::program::ops::{BatchNorm, Pointwise};

/// The rectifiers behind normalisations that keep nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rectifiers {
    /// Those whose outputs no other gradient reads.
    Unread,
    /// All. What another gradient reads, that of a weight most often, is then gone when that is made, and not held beside what comes next.
    All,
}

impl Builder<'_> {
    /// Finds the rectifiers whose outputs are kept for themselves alone, or those as well that other gradients read.
    pub(super) fn mark_merged(&mut self, rectifiers: Rectifiers) {
        for id in 0..self.graph.nodes.len() {
            let is_one = self.is_live(id) && self.needs_gradient(id) && self.rectifies(id);
            self.merged[id] = is_one && (rectifiers == Rectifiers::All || !self.is_asked_for(id));
        }
    }

    /// Whether a node rectifies what a normalisation gives to nobody else.
    fn rectifies(&self, id: NodeId) -> bool {
        let Some(node) = self.op(id).filter(|node| rectifier(node.op).is_some()) else { return false };
        let before = node.inputs[0];
        let is_normalised = self.op(before).is_some_and(|node| matches!(node.op, Op::BatchNorm(_)));
        is_normalised && self.consumers[before] == [id] && !self.ends.contains(&before)
    }

    /// Whether another gradient reads a value, under whatever shape.
    pub(super) fn is_asked_for(&self, id: NodeId) -> bool {
        self.consumers[id].iter().any(|&reader| {
            let is_view = matches!(self.node(reader).source, Source::View(_));
            self.reads_input(reader, id) || (is_view && self.is_asked_for(reader))
        })
    }

    /// What computes the gradients of a node: of a normalisation, maybe those of what rectifies it, too.
    pub(super) fn differentiated(&self, id: NodeId, op: &Op) -> Op {
        match (op, self.consumers[id].as_slice()) {
            (Op::BatchNorm(norm), &[only]) if self.merged[only] => {
                let rectifier = self.op(only).and_then(|node| rectifier(node.op));
                Op::BatchNorm(BatchNorm { rectifier, ..norm.clone() })
            }
            _ => op.clone(),
        }
    }
}

/// The rectifier that an operation is. Of those with a slope, the sign is not enough.
fn rectifier(op: &Op) -> Option<Function> {
    match op {
        Op::Pointwise(Pointwise { function: function @ (Function::Relu | Function::Relu6), .. }) => Some(*function),
        _ => None,
    }
}
