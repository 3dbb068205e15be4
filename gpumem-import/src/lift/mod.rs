//! Lifts ATen operations to layers of the language.
//!
//! Patterns of several operations come first: see [`patterns`]. What is left is lifted one operation after the other. A value that all
//! samples share is lifted when something reads it, with [`Parameter`](Layer) or `Constant` as its source.

mod elementwise;
pub mod layer;
mod movement;
mod parameters;
mod patterns;
mod view;
mod weighted;

pub use layer::{Layer, Literal};

use crate::batch::Batch;
use crate::fold::{Origin, origins};
use crate::model::{Argument, Model, Node, State, ValueId};
use std::collections::{BTreeMap, HashMap};

/// What lifting makes of a model.
#[derive(Clone, Debug, Default)]
pub struct Lifted {
    /// The layers, each after those that it reads.
    pub layers: Vec<Layer>,
    /// The values that the network returns.
    pub outputs: Vec<ValueId>,
    /// The operations that the language does not have.
    pub unknown: Vec<Unknown>,
}

/// An operation that the language does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Unknown {
    /// The node of the model.
    pub node: usize,
    /// The operation, as ATen calls it.
    pub op: String,
    /// The module, and the operation's name if there is none.
    pub place: String,
    /// The reason, in words.
    pub reason: String,
}

/// Lifts a model.
pub fn lift(model: &Model, batch: &Batch) -> Lifted {
    let mut lift = Lift::new(model, batch);
    patterns::find(&mut lift);
    for index in 0..model.nodes.len() {
        lift.visit(index);
    }
    let outputs: Vec<ValueId> = model.outputs.iter().map(|&output| lift.resolve(output)).collect();
    let mut layers = lift.layers;
    retain_read(&mut layers, &outputs);
    patterns::tie(&mut layers);
    let mut unknown = lift.unknown;
    unknown.sort_by_key(|unknown| unknown.node);
    Lifted { layers, outputs, unknown }
}

/// Removes the layers that no output depends on.
fn retain_read(layers: &mut Vec<Layer>, outputs: &[ValueId]) {
    let mut read: Vec<ValueId> = outputs.to_vec();
    let mut keeps = vec![false; layers.len()];
    for (index, layer) in layers.iter().enumerate().rev() {
        if read.contains(&layer.output) {
            keeps[index] = true;
            read.extend(&layer.inputs);
        }
    }
    let mut keeps = keeps.into_iter();
    layers.retain(|_| keeps.next().unwrap_or(false));
}

/// The reason why an operation is not lifted.
pub(crate) struct Refused(pub(crate) String);

/// The result of lifting one operation.
pub(crate) type Result<T = ()> = std::result::Result<T, Refused>;

/// Refuses an operation.
pub(crate) fn refuse<T>(reason: impl Into<String>) -> Result<T> {
    Err(Refused(reason.into()))
}

pub(crate) struct Lift<'m> {
    pub(crate) model: &'m Model,
    pub(crate) batch: &'m Batch,
    pub(crate) origins: Vec<Origin>,
    /// The nodes that read each value.
    pub(crate) readers: Vec<Vec<usize>>,
    /// The node that makes each value.
    pub(crate) makers: Vec<Option<usize>>,
    /// The state that each value is.
    pub(crate) states: HashMap<ValueId, usize>,
    /// Values that stand for another one.
    alias: HashMap<ValueId, ValueId>,
    /// Nodes that a pattern has taken.
    pub(crate) taken: Vec<bool>,
    /// Layers that patterns put in the place of a node.
    planned: BTreeMap<usize, Vec<Layer>>,
    /// Shared values that have been lifted.
    shared: HashMap<ValueId, bool>,
    /// Values of the language that no value of the model is: their shapes of a sample.
    made: Vec<Vec<u64>>,
    layers: Vec<Layer>,
    unknown: Vec<Unknown>,
    /// Rotary positions that were looked at.
    pub(crate) rotations: patterns::Rotations,
    /// Masks that were looked at.
    pub(crate) masks: patterns::Masks,
    /// Tables of relative positions that are layers.
    pub(crate) relative: HashMap<ValueId, ValueId>,
}

impl<'m> Lift<'m> {
    fn new(model: &'m Model, batch: &'m Batch) -> Lift<'m> {
        let mut readers = vec![Vec::new(); model.values.len()];
        let mut makers = vec![None; model.values.len()];
        for (index, node) in model.nodes.iter().enumerate() {
            for value in node.tensors() {
                if readers[value].last() != Some(&index) {
                    readers[value].push(index);
                }
            }
            for &output in &node.outputs {
                makers[output] = Some(index);
            }
        }
        Lift {
            model,
            batch,
            origins: origins(model),
            readers,
            makers,
            states: model.state.iter().enumerate().map(|(index, state)| (state.value, index)).collect(),
            alias: HashMap::new(),
            taken: vec![false; model.nodes.len()],
            planned: BTreeMap::new(),
            shared: HashMap::new(),
            made: Vec::new(),
            layers: Vec::new(),
            unknown: Vec::new(),
            rotations: HashMap::new(),
            masks: HashMap::new(),
            relative: HashMap::new(),
        }
    }

    /// Lifts a node, or puts in its place what a pattern has planned.
    fn visit(&mut self, index: usize) {
        let model = self.model;
        let node = &model.nodes[index];
        if let Some(layers) = self.planned.remove(&index) {
            for layer in layers {
                let inputs: Result<Vec<ValueId>> = layer.inputs.iter().map(|&input| self.operand(input)).collect();
                match inputs {
                    Ok(inputs) => self.add(index, Layer { inputs, ..layer }),
                    Err(Refused(reason)) => self.report(index, reason),
                }
            }
            return;
        }
        let is_shared = |output: &ValueId| !matches!(self.origins[*output], Origin::Sample);
        if self.taken[index] || node.outputs.iter().all(is_shared) {
            return;
        }
        if self.batch.mixing.contains(&index) {
            return self.report(index, "it mixes the samples of a batch".into());
        }
        if let Err(Refused(reason)) = self.lift(index) {
            self.report(index, reason);
        }
        // What reads the changed value afterwards reads the result.
        let is_in_place = node.op.ends_with('_') && !node.op.ends_with("__");
        if let (true, Some(first), Some(&output)) = (is_in_place, node.tensors().next(), node.outputs.first()) {
            let (first, output) = (self.resolve(first), self.resolve(output));
            if first != output {
                self.alias.insert(first, output);
            }
        }
    }

    /// Lifts one operation.
    fn lift(&mut self, index: usize) -> Result {
        let model = self.model;
        let node = &model.nodes[index];
        let op = node.op.strip_suffix('_').filter(|op| !op.ends_with('_')).unwrap_or(&node.op);
        if weighted::lift(self, index, node, op)?
            || elementwise::lift(self, index, node, op)?
            || movement::lift(self, index, node, op)?
        {
            return Ok(());
        }
        refuse("the language has no such operation")
    }

    fn report(&mut self, index: usize, reason: String) {
        let node = &self.model.nodes[index];
        let place = if node.path().is_empty() { node.name.clone() } else { node.path().to_string() };
        self.unknown.push(Unknown { node: index, op: node.op.clone(), place, reason });
    }

    /// Returns the value that a value stands for.
    pub(crate) fn resolve(&self, mut value: ValueId) -> ValueId {
        while let Some(&other) = self.alias.get(&value) {
            value = other;
        }
        value
    }

    /// Makes a value stand for another one.
    pub(crate) fn same(&mut self, value: ValueId, other: ValueId) {
        let other = self.resolve(other);
        if other != value {
            self.alias.insert(value, other);
        }
    }

    /// Adds a layer in the place of a node.
    pub(crate) fn add(&mut self, index: usize, mut layer: Layer) {
        layer.node = index;
        layer.modules = self.model.nodes[index].modules.clone();
        self.layers.push(layer);
    }

    /// Plans layers in the place of a node.
    pub(crate) fn plan(&mut self, index: usize, layers: Vec<Layer>) {
        self.taken[index] = true;
        self.planned.insert(index, layers);
    }

    /// Returns the planned layer that makes a value.
    pub(crate) fn planned_layer(&self, value: ValueId) -> Option<&Layer> {
        let layers = self.planned.get(&(*self.makers.get(value)?)?)?;
        layers.iter().find(|layer| layer.output == value)
    }

    /// True if a pattern has put other layers in the place of a node, or needs it no more.
    pub(crate) fn is_taken(&self, index: usize) -> bool {
        self.taken[index]
    }

    /// Takes a node whose results nothing reads.
    pub(crate) fn drop_node(&mut self, index: usize) {
        self.taken[index] = true;
        self.planned.remove(&index);
    }

    /// Returns the values of the model that planned layers read. `None` if nothing is planned in the place of this node.
    pub(crate) fn planned_inputs(&self, index: usize) -> Option<Vec<ValueId>> {
        let layers = self.planned.get(&index)?;
        let inputs = layers.iter().flat_map(|layer| &layer.inputs).copied();
        Some(inputs.filter(|&input| input < self.model.values.len()).collect())
    }

    /// Returns a value that is between two layers of one operation, of this shape of a sample.
    pub(crate) fn between(&mut self, shape: &[u64]) -> ValueId {
        self.made.push(shape.to_vec());
        self.model.values.len() + self.made.len() - 1
    }

    /// Returns the shape of a sample, as the language has it.
    pub(crate) fn sample(&self, value: ValueId) -> Vec<u64> {
        match value.checked_sub(self.model.values.len()) {
            Some(index) => self.made[index].clone(),
            None => {
                let shape = self.batch.sample(value, self.model);
                if shape.is_empty() { vec![1] } else { shape }
            }
        }
    }

    /// True if a value differs from sample to sample.
    pub(crate) fn is_sample(&self, value: ValueId) -> bool {
        self.origins.get(value).is_none_or(|origin| matches!(origin, Origin::Sample))
    }

    /// Returns the state that a value is. `None` if it is computed.
    pub(crate) fn state(&self, value: ValueId) -> Option<&'m State> {
        let model = self.model;
        self.states.get(&value).map(|&index| {
            let state = &model.state[index];
            state.tied_to.map_or(state, |owner| &model.state[owner])
        })
    }

    /// Returns the key of the parameter that an argument is. Refuses a value that is computed.
    pub(crate) fn parameter(&self, node: &Node, name: &str) -> Result<Option<&'m str>> {
        let Some(value) = node.tensor(name) else { return Ok(None) };
        match self.state(value) {
            Some(state) => Ok(Some(&state.key)),
            None => refuse(format!("its {name} is computed")),
        }
    }

    /// Returns the dimension of the language that a dimension of the model is: the batch is 0. `None` if it is the batch.
    pub(crate) fn dim(&self, value: ValueId, dim: i64) -> Option<i64> {
        let rank = self.model.values[value].shape.len() as i64;
        let dim = if dim < 0 { dim + rank } else { dim };
        let axis = self.batch.axes[value].filter(|axis| axis.before * axis.after == 1);
        match axis {
            Some(axis) if axis.dim as i64 == dim => None,
            Some(axis) if (axis.dim as i64) < dim => Some(dim),
            _ => Some(dim + 1),
        }
    }

    /// Returns the only node that reads a value. `None` if there are several, or the network returns it.
    pub(crate) fn only_reader(&self, value: ValueId) -> Option<usize> {
        match self.readers[value][..] {
            [only] if !self.model.outputs.contains(&value) => Some(only),
            _ => None,
        }
    }
}

/// Reads the arguments of a node.
pub(crate) trait Arguments {
    fn float(&self, name: &str) -> Option<f64>;
    fn int(&self, name: &str) -> Option<i64>;
    fn ints(&self, name: &str) -> Option<Vec<i64>>;
    fn is(&self, name: &str, default: bool) -> bool;
    fn text(&self, name: &str) -> Option<&str>;
    /// Returns integers for so many dimensions: one stands for all.
    fn sizes(&self, name: &str, count: usize, default: i64) -> Vec<i64>;
}

impl Arguments for Node {
    fn float(&self, name: &str) -> Option<f64> {
        match self.argument(name)? {
            Argument::Float(number) => Some(*number),
            Argument::Int(number) => Some(*number as f64),
            _ => None,
        }
    }

    fn int(&self, name: &str) -> Option<i64> {
        match self.argument(name)? {
            Argument::Int(number) => Some(*number),
            _ => None,
        }
    }

    fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.argument(name)? {
            Argument::Ints(numbers) => Some(numbers.clone()),
            Argument::Int(number) => Some(vec![*number]),
            _ => None,
        }
    }

    fn is(&self, name: &str, default: bool) -> bool {
        match self.argument(name) {
            Some(Argument::Bool(flag)) => *flag,
            _ => default,
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        match self.argument(name)? {
            Argument::Text(text) => Some(text),
            _ => None,
        }
    }

    fn sizes(&self, name: &str, count: usize, default: i64) -> Vec<i64> {
        match self.ints(name).as_deref() {
            None | Some([]) => vec![default; count],
            Some([one]) => vec![*one; count],
            Some(several) => several.to_vec(),
        }
    }
}
