//! Activation masks: rectifiers that save one bit of each element.
//!
//! The gradient of a rectifier reads its output, which a convolution or a linear layer after it keeps anyway. If dropout, padding, an average
//! pool or a layer without a trained weight follows instead, no other gradient reads the output. Then it is enough to know on which side of 0
//! each element is. After a normalisation not even that [is kept](crate::lower::analysis::activation_slopes).

use crate::graph::{Graph, NodeId, Source};
use crate::lower::analysis::Analysis;
use crate::lower::analysis::activation_slopes::Activations;
use crate::lower::options::Training;
use crate::program::Op;
use crate::program::ops::{Pointwise, Rectifier};
use alloc::vec::Vec;

impl Analysis<'_> {
    /// Returns the functions with two slopes whose outputs would be kept for their own gradients alone.
    fn sided(&self) -> Vec<NodeId> {
        let has_sides = |id: NodeId| {
            let op = self.op(id).map(|node| node.op);
            matches!(op, Some(Op::Pointwise(Pointwise { function, .. })) if function.row().other_side.is_some())
        };
        let is_alone = |id: NodeId| !self.merged[id] && !self.is_asked_for(id) && !self.is_end(id);
        let all = 0..self.graph.nodes.len();
        all.filter(|&id| self.is_live(id) && self.needs_gradient(id) && has_sides(id) && is_alone(id)).collect()
    }

    /// True if the loss reads a value, directly or through views.
    fn is_end(&self, id: NodeId) -> bool {
        let is_view = |reader: NodeId| matches!(self.node(reader).source, Source::View(_));
        self.ends.contains(&id) || self.consumers[id].iter().any(|&reader| is_view(reader) && self.is_end(reader))
    }
}

/// Lets functions save a bit of each element if they would save their outputs for their own gradients alone.
pub(in crate::lower) fn keep_sides(graph: &mut Graph, ends: &[NodeId], training: Training<'_>) {
    let sided = Analysis::new(graph, ends.to_vec(), Some(training), Activations::Unread).sided();
    for id in sided {
        if let Source::Op { op, .. } = &mut graph.nodes[id].source
            && let Op::Pointwise(of) = op
        {
            *op = Op::Rectifier(Rectifier { of: of.clone() });
        }
    }
}
