//! Recomputation of groups that the user marked.

use super::emit::Treatment;
use super::values::Values;
use crate::graph::{Graph, NodeId};
use crate::lower::draft::Draft;
use alloc::vec::Vec;

/// Returns a choice for each value. A value is kept if it leaves all groups around it, which means that a node outside of them reads it in the
/// forward pass. Otherwise it is recomputed once or, if it leaves none of several nested groups, once for each of two groups ([`Treatment::Late`]).
pub(in crate::lower::schedule::recompute) fn choices(draft: &Draft, values: &Values, graph: &Graph) -> Vec<Treatment> {
    let around = |node: NodeId| graph.groups.iter().filter(move |group| contains(group, node));
    let choice = |value: &super::values::Value| {
        let node = draft.nodes[value.producer as usize];
        let leaves = |group: &&[NodeId; 2]| {
            let mut readers = value.consumers.iter().map(|&at| draft.nodes[at as usize]);
            readers.any(|reader| !contains(group, reader))
        };
        if value.is_pinned {
            return Treatment::Keep;
        }
        // The number of nested groups that the value does not leave.
        let inside = around(node).filter(|group| !leaves(group)).count();
        match (inside, around(node).count()) {
            (0, _) => Treatment::Keep,
            (_, 1) => Treatment::Once,
            (inside, all) if inside < all => Treatment::Once,
            _ => Treatment::Late,
        }
    };
    values.values.iter().map(choice).collect()
}

fn contains([first, end]: &[NodeId; 2], node: NodeId) -> bool {
    (*first..*end).contains(&node)
}
