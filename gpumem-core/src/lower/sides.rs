//! Rectifiers that keep a bit of each element.
//!
//! A rectifier's gradient reads its output, which a convolution or a linear map behind it keeps anyway. Where nothing else reads that again, as
//! where dropout, padding, an average pool or a map without a trained weight follows, all that is needed of it is on which side of 0 each
//! element is. Behind a normalisation not even that [is kept](super::merged).

use super::builder::Builder;
use crate::graph::{Graph, NodeId, Source};
use crate::program::Op;
use crate::program::ops::{Pointwise, Rectifier};
use alloc::vec::Vec;

impl Builder<'_> {
    /// The functions of two slopes whose outputs would be kept for themselves alone.
    pub(super) fn sided(&self) -> Vec<NodeId> {
        let has_sides = |id: NodeId| {
            let op = self.op(id).map(|node| node.op);
            matches!(op, Some(Op::Pointwise(Pointwise { function, .. })) if function.row().other_side.is_some())
        };
        let is_alone = |id: NodeId| !self.merged[id] && !self.is_asked_for(id) && !self.is_end(id);
        let all = 0..self.graph.nodes.len();
        all.filter(|&id| self.is_live(id) && self.needs_gradient(id) && has_sides(id) && is_alone(id)).collect()
    }

    /// Whether the loss reads a value, under whatever shape.
    fn is_end(&self, id: NodeId) -> bool {
        let is_view = |reader: NodeId| matches!(self.node(reader).source, Source::View(_));
        self.ends.contains(&id) || self.consumers[id].iter().any(|&reader| is_view(reader) && self.is_end(reader))
    }
}

/// Lets these functions keep a bit of each element.
pub(super) fn keep_sides(graph: &mut Graph, sided: &[NodeId]) {
    for &id in sided {
        if let Source::Op { op, .. } = &mut graph.nodes[id].source
            && let Op::Pointwise(of) = op
        {
            *op = Op::Rectifier(Rectifier { of: of.clone() });
        }
    }
}
