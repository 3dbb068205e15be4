//! Frames: when Python lets go of a value of the forward pass.

use crate::model::{Model, Module, ValueId};
use std::collections::HashSet;
use std::rc::Rc;

/// Returns for each operation the values that go after it.
///
/// A value goes after its last use. What the network returns stays, and a value that enters a module's call stays until that call returns,
/// since its caller holds it as an argument. A call is a run of operations whose modules begin alike.
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
    for (start, end) in calls(model) {
        for node in &model.nodes[start..=end] {
            for value in node.tensors() {
                if born[value].is_some_and(|born| born < start) && last[value].is_some_and(|last| last < end) {
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
