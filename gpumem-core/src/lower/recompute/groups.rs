//! What is computed again because somebody wrote so.

use super::Draft;
use super::emit::Choice;
use super::values::Values;
use crate::graph::{Graph, NodeId};
use alloc::vec::Vec;

/// A choice for each value: what nothing outside its innermost group reads in the forward pass is computed again. What only a group inside
/// another one hands to the rest of that is dropped twice.
pub(super) fn choices(draft: &Draft, values: &Values, graph: &Graph) -> Vec<Choice> {
    let around = |node: NodeId| graph.groups.iter().filter(move |group| contains(group, node));
    let choice = |value: &super::values::Value| {
        let node = draft.nodes[value.producer as usize];
        let leaves = |group: &&[NodeId; 2]| {
            let mut readers = value.consumers.iter().map(|&at| draft.nodes[at as usize]);
            readers.any(|reader| !contains(group, reader))
        };
        if value.is_pinned {
            return Choice::Keep;
        }
        // Of groups inside each other, those that it does not leave.
        let inside = around(node).filter(|group| !leaves(group)).count();
        match (inside, around(node).count()) {
            (0, _) => Choice::Keep,
            (_, 1) => Choice::Once,
            (inside, all) if inside < all => Choice::Once,
            _ => Choice::Late,
        }
    };
    values.values.iter().map(choice).collect()
}

fn contains([first, end]: &[NodeId; 2], node: NodeId) -> bool {
    (*first..*end).contains(&node)
}
