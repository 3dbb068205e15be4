//! Puts together what an exporter took apart: ATen's operations where ONNX has several.
//!
//! A pattern is found at its last operation, which becomes the operation of ATen. What nothing reads afterwards goes. A pattern that does
//! not match whole is not applied.

mod attention;
mod elementwise;
mod norms;
mod recurrent;

use crate::fold::{Origin, origins};
use crate::model::{Argument, Model, Node, StateKind, Value, ValueId};
use std::collections::HashMap;

/// Composes the operations of a model, and removes what nothing reads.
pub(super) fn compose(model: &mut Model) {
    let mut composer = Composer::new(model);
    for index in 0..composer.model.nodes.len() {
        composer.resolve(index);
        if let Some(source) = elementwise::same(&composer, index) {
            composer.same(index, source);
            continue;
        }
        let found = elementwise::find(&mut composer, index)
            .or_else(|| norms::find(&mut composer, index))
            .or_else(|| attention::find(&mut composer, index));
        if let Some(node) = found {
            composer.model.nodes[index] = node;
        }
    }
    let alias = composer.alias;
    let before = composer.before;
    for output in &mut model.outputs {
        *output = *alias.get(output).unwrap_or(output);
    }
    insert(model, before);
    recurrent::compose(model);
    prune(model);
}

/// Puts nodes in their places before others.
fn insert(model: &mut Model, mut before: HashMap<usize, Vec<Node>>) {
    if before.is_empty() {
        return;
    }
    let nodes = std::mem::take(&mut model.nodes);
    for (index, node) in nodes.into_iter().enumerate() {
        model.nodes.extend(before.remove(&index).unwrap_or_default());
        model.nodes.push(node);
    }
}

/// Removes operations and constants that no output depends on.
pub(super) fn prune(model: &mut Model) {
    let mut is_read = vec![false; model.values.len()];
    for &output in &model.outputs {
        is_read[output] = true;
    }
    let mut keeps = vec![false; model.nodes.len()];
    for (index, node) in model.nodes.iter().enumerate().rev() {
        if node.outputs.iter().any(|&output| is_read[output]) {
            keeps[index] = true;
            for input in node.tensors() {
                is_read[input] = true;
            }
        }
    }
    let mut keeps = keeps.into_iter();
    model.nodes.retain(|_| keeps.next().unwrap_or(false));
    let keeps: Vec<bool> =
        model.state.iter().map(|state| is_read[state.value] || !matches!(state.kind, StateKind::Constant)).collect();
    // Indices of owners follow the tensors that stay.
    let place = |index: usize| keeps[..index].iter().filter(|keeps| **keeps).count();
    for state in &mut model.state {
        state.tied_to = state.tied_to.map(place);
    }
    let mut keeps = keeps.iter();
    model.state.retain(|_| keeps.next().copied().unwrap_or(false));
}

pub(super) struct Composer<'m> {
    model: &'m mut Model,
    origins: Vec<Origin>,
    makers: Vec<Option<usize>>,
    readers: Vec<u32>,
    states: HashMap<ValueId, usize>,
    before: HashMap<usize, Vec<Node>>,
    /// Values that stand for another one.
    alias: HashMap<ValueId, ValueId>,
}

impl<'m> Composer<'m> {
    fn new(model: &'m mut Model) -> Composer<'m> {
        let (mut makers, mut readers) = (vec![None; model.values.len()], vec![0; model.values.len()]);
        for (index, node) in model.nodes.iter().enumerate() {
            for value in node.tensors() {
                readers[value] += 1;
            }
            for &output in &node.outputs {
                makers[output] = Some(index);
            }
        }
        for &output in &model.outputs {
            readers[output] += 1;
        }
        let states = model.state.iter().enumerate().map(|(index, state)| (state.value, index)).collect();
        Composer {
            origins: origins(model),
            model,
            makers,
            readers,
            states,
            before: HashMap::new(),
            alias: HashMap::new(),
        }
    }

    /// Makes a node read what its operands stand for.
    fn resolve(&mut self, index: usize) {
        if self.alias.is_empty() {
            return;
        }
        for (_, argument) in &mut self.model.nodes[index].arguments {
            match argument {
                Argument::Tensor(value) => *value = *self.alias.get(value).unwrap_or(value),
                Argument::Tensors(values) => {
                    for value in values.iter_mut().flatten() {
                        *value = *self.alias.get(value).unwrap_or(value);
                    }
                }
                _ => {}
            }
        }
    }

    /// Makes what a node returns stand for another value.
    fn same(&mut self, index: usize, source: ValueId) {
        let output = self.model.nodes[index].outputs[0];
        self.readers[source] = (self.readers[source] + self.readers[output]).saturating_sub(1);
        self.alias.insert(output, source);
    }

    fn node(&self, index: usize) -> &Node {
        &self.model.nodes[index]
    }

    /// Returns the node that makes a value, if it is one of these operations.
    fn made(&self, value: ValueId, ops: &[&str]) -> Option<&Node> {
        let node = &self.model.nodes[(*self.makers.get(value)?)?];
        ops.contains(&&node.op[..]).then_some(node)
    }

    /// True if one operation reads a value.
    fn is_read_once(&self, value: ValueId) -> bool {
        self.readers.get(value) == Some(&1)
    }

    fn shape(&self, value: ValueId) -> &[u64] {
        &self.model.values[value].shape
    }

    fn is_float(&self, value: ValueId) -> bool {
        self.model.values[value].dtype.is_float()
    }

    /// True for a parameter of the model, not one that is computed.
    fn is_parameter(&self, value: ValueId) -> bool {
        self.states
            .get(&value)
            .is_some_and(|&index| matches!(self.model.state[index].kind, StateKind::Parameter { .. }))
    }

    /// Returns the number of an argument: written as such, or a constant that has it everywhere.
    fn number(&self, node: &Node, name: &str) -> Option<f64> {
        match node.argument(name)? {
            Argument::Float(number) => Some(*number),
            Argument::Int(number) => Some(*number as f64),
            Argument::Tensor(value) => self.constant(*value),
            _ => None,
        }
    }

    /// Returns the number that a constant has everywhere.
    fn constant(&self, value: ValueId) -> Option<f64> {
        let numbers = self.origins.get(value)?.numbers()?.numbers();
        let (first, rest) = numbers.split_first()?;
        rest.iter().all(|number| number == first).then_some(*first)
    }

    /// Returns both operands of an operation in either order.
    fn orders(&self, node: &Node) -> Vec<(ValueId, ValueId)> {
        match (node.tensor("self"), node.tensor("other")) {
            (Some(a), Some(b)) => vec![(a, b), (b, a)],
            _ => Vec::new(),
        }
    }

    /// Returns a node in the place of another one, with the same outputs.
    fn replaced(&self, index: usize, op: &str, arguments: Vec<(&str, Argument)>) -> Node {
        let arguments = arguments.into_iter().map(|(name, argument)| (name.to_string(), argument)).collect();
        Node { op: op.to_string(), arguments, ..self.node(index).clone() }
    }

    /// Adds a node before another one, and returns what it makes.
    fn put_before(&mut self, index: usize, op: &str, arguments: Vec<(&str, Argument)>, shape: Vec<u64>) -> ValueId {
        let like = &self.model.nodes[index];
        let dtype = self.model.values[like.outputs[0]].dtype;
        let name = format!("{}.{op}", like.name);
        let mut node = self.replaced(index, op, arguments);
        self.model.values.push(Value { name: name.clone(), dtype, shape, strides: None });
        let value = self.model.values.len() - 1;
        node.name = name;
        node.outputs = vec![value];
        self.origins.push(Origin::Sample);
        self.makers.push(None);
        self.readers.push(1);
        self.before.entry(index).or_default().push(node);
        value
    }
}
