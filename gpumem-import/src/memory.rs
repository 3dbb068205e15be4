//! Values that share memory: views, and results of changes in place.

use crate::model::{Model, Node, ValueId};
use std::collections::HashMap;

/// Views that have all elements of their input, in the same order.
const WHOLE: [&str; 10] =
    ["view", "squeeze", "unsqueeze", "flatten", "unflatten", "view_as", "detach", "alias", "contiguous", "to"];
/// Views of a part of their input, or in another order.
const PARTIAL: [&str; 14] = [
    "slice",
    "select",
    "narrow",
    "transpose",
    "permute",
    "t",
    "split",
    "chunk",
    "unbind",
    "split_with_sizes",
    "expand",
    "expand_as",
    "tensor_split",
    "diagonal",
];

/// True if an operation changes its first argument.
pub(crate) fn changes_first(node: &Node) -> bool {
    node.op.ends_with('_') && !node.op.ends_with("__") && node.tensors().next().is_some()
}

/// True if an operation returns all elements of its input in their order: a view, or a reshape that may be one.
pub(crate) fn is_whole_view(node: &Node) -> bool {
    WHOLE.contains(&&node.op[..]) || node.op == "reshape"
}

/// True if what an operation returns shares memory with its first argument.
pub(crate) fn is_view(node: &Node) -> bool {
    is_whole_view(node) || PARTIAL.contains(&&node.op[..]) || changes_first(node)
}

/// Returns for each value the one whose memory it is a view of: itself if it has memory of its own.
pub(crate) fn roots(model: &Model) -> Vec<ValueId> {
    let mut roots: Vec<ValueId> = (0..model.values.len()).collect();
    for node in model.nodes.iter().filter(|node| is_view(node)) {
        let Some(input) = node.tensors().next() else { continue };
        for &output in &node.outputs {
            roots[output] = roots[input];
        }
    }
    roots
}

/// Returns the values that share memory which is changed in place, by the value that they are views of.
pub(crate) fn families(model: &Model, roots: &[ValueId]) -> HashMap<ValueId, Vec<ValueId>> {
    let changed = model.nodes.iter().filter(|node| changes_first(node)).filter_map(|node| node.tensors().next());
    let mut families: HashMap<ValueId, Vec<ValueId>> = changed.map(|value| (roots[value], Vec::new())).collect();
    for (value, root) in roots.iter().enumerate() {
        if let Some(family) = families.get_mut(root) {
            family.push(value);
        }
    }
    families
}
