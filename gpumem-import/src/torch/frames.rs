//! Frames: when Python lets go of a value of the forward pass.

use crate::model::{Model, Module, ValueId};
use std::collections::HashSet;
use std::rc::Rc;

/// Returns for each operation the values that go after it.
///
/// A value goes after its last use, with three exceptions. What the network returns stays. A value that enters a module's call stays until
/// that call returns, since its caller holds it as an argument. And the tensors of a list stay until the call returns in which they are
/// joined, since the list has a name there. A call is a run of operations whose modules begin alike.
pub(super) fn last_uses(model: &Model) -> Vec<Vec<ValueId>> {
    let count = model.values.len();
    let (mut born, mut last) = (vec![None; count], vec![None; count]);
    for (index, node) in model.nodes.iter().enumerate() {
        for &output in &node.outputs {
            (born[output], last[output]) = (Some(index), Some(index));
        }
        for value in node.tensors().filter(|&value| born[value].is_some()) {
            last[value] = Some(index);
        }
    }
    // The operations whose innermost call has been seen.
    let mut is_seen = vec![false; model.nodes.len()];
    for (start, end) in calls(model) {
        for (index, node) in model.nodes.iter().enumerate().take(end + 1).skip(start) {
            let is_list = !is_seen[index] && matches!(&node.op[..], "cat" | "concat" | "concatenate" | "stack");
            is_seen[index] = true;
            for value in node.tensors() {
                let enters = born[value].is_some_and(|born| born < start);
                if (enters || is_list) && last[value].is_some_and(|last| last < end) {
                    last[value] = Some(end);
                }
            }
        }
    }
    let kept: HashSet<ValueId> = model.outputs.iter().copied().collect();
    let mut dies = vec![Vec::new(); model.nodes.len()];
    for (value, last) in last.into_iter().enumerate() {
        if let Some(last) = last.filter(|_| !kept.contains(&value)) {
            dies[last].push(value);
        }
    }
    dies
}

/// Returns the first and the last operation of each call of a module, inner calls before outer ones. The model's own is left out.
fn calls(model: &Model) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    let mut open: Vec<(String, usize)> = Vec::new();
    let mut before: Option<Rc<[Module]>> = None;
    for (index, node) in model.nodes.iter().enumerate() {
        // Operations that are made by the exporter are in no module: they belong to the one before.
        if node.modules.is_empty() || before.as_ref().is_some_and(|before| Rc::ptr_eq(before, &node.modules)) {
            continue;
        }
        before = Some(node.modules.clone());
        let inner = node.modules.get(1..).unwrap_or_default();
        let common = open.iter().zip(inner).take_while(|((call, _), module)| *call == module.call).count();
        while open.len() > common {
            if let Some((_, start)) = open.pop() {
                spans.push((start, index - 1));
            }
        }
        open.extend(inner[common..].iter().map(|module| (module.call.clone(), index)));
    }
    let end = model.nodes.len().saturating_sub(1);
    spans.extend(open.into_iter().rev().map(|(_, start)| (start, end)));
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Argument, Node};

    /// Makes an operation of the module at this path that reads and makes these values.
    fn node(op: &str, path: &[&str], reads: &[ValueId], makes: ValueId) -> Node {
        let module = |path: &&str| Module { call: path.to_string(), path: path.to_string(), class: String::new() };
        let root = Module { call: String::new(), path: String::new(), class: String::new() };
        Node {
            name: format!("n{makes}"),
            op: op.into(),
            overload: String::from("default"),
            arguments: vec![(String::from("tensors"), Argument::Tensors(reads.iter().copied().map(Some).collect()))],
            outputs: vec![makes],
            modules: std::iter::once(root).chain(path.iter().map(module)).collect(),
            has_gradient: true,
        }
    }

    fn dying(nodes: Vec<Node>, outputs: &[ValueId]) -> Vec<Vec<ValueId>> {
        let value =
            crate::model::Value { name: String::new(), dtype: crate::model::Dtype::F32, shape: vec![2], strides: None };
        let values = vec![value; nodes.len() + 1];
        last_uses(&Model { nodes, values, outputs: outputs.to_vec(), ..Model::default() })
    }

    #[test]
    fn values_go_after_their_last_use() {
        let nodes = vec![node("relu", &[], &[0], 1), node("relu", &[], &[1], 2), node("relu", &[], &[2], 3)];
        assert_eq!(dying(nodes, &[3]), [vec![], vec![1], vec![2]]);
    }

    #[test]
    fn arguments_of_a_call_stay_until_it_returns() {
        let nodes = vec![
            node("relu", &[], &[0], 1),
            node("relu", &["a"], &[1], 2),
            node("relu", &["a"], &[2], 3),
            node("relu", &[], &[3], 4),
        ];
        assert_eq!(dying(nodes, &[4]), [vec![], vec![], vec![1, 2], vec![3]]);
    }

    #[test]
    fn lists_stay_until_the_call_returns() {
        let nodes = vec![
            node("relu", &["a"], &[0], 1),
            node("cat", &["a"], &[1], 2),
            node("relu", &["a", "a.b"], &[2], 3),
            node("relu", &["a"], &[3], 4),
            node("relu", &[], &[4], 5),
        ];
        assert_eq!(dying(nodes, &[5]), [vec![], vec![], vec![2], vec![1, 3], vec![4]]);
    }
}
