//! Lifts ATen operations to layers of the language.
//!
//! Patterns of several operations come first: see `patterns`. What is left is lifted one operation after the other. A value that all
//! samples share is lifted when something reads it, with [`Parameter`](Layer) or `Constant` as its source.

mod axes;
mod constants;
mod einsum;
mod elementwise;
mod in_place;
mod inputs;
pub mod layer;
mod lookup;
mod movement;
mod open;
mod parameters;
mod parts;
mod patterns;
mod recurrent;
mod resize;
mod shapes;
mod view;
mod weighted;
mod weights;
mod wide;

pub use constants::Table;
pub use layer::{Layer, Literal};
pub(crate) use open::{Open, lift_open};

use crate::batch::Batch;
use crate::fold::{Origin, origins};
use crate::memory::{changes_first, families, roots};
use crate::model::{Argument, Model, Node, State, StateKind, ValueId};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The number that a mask adds in place of infinity.
pub(crate) const HIDDEN: f64 = 1e9;

/// A model as layers.
#[derive(Clone, Debug, Default)]
pub struct Lifted {
    /// The layers, each after those that it reads.
    pub layers: Vec<Layer>,
    /// The values that the network returns.
    pub outputs: Vec<ValueId>,
    /// Values that are further inputs of the network, after those of the model: numbers that the model draws from the normal distribution.
    pub noise: Vec<ValueId>,
    /// Tables of numbers that are frozen parameters of the network.
    pub tables: Vec<Table>,
    /// The operations that the language does not have.
    pub unknown: Vec<Unknown>,
    /// Operations that the network has in another way than the model.
    pub notes: Vec<Unknown>,
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
    inputs::give_tokens_axes(&mut lift);
    for index in 0..model.nodes.len() {
        lift.visit(index);
    }
    let outputs: Vec<ValueId> = model.outputs.iter().map(|&output| lift.resolve(output)).collect();
    let mut layers = lift.layers;
    retain_read(&mut layers, &outputs);
    patterns::tie(&mut layers);
    let notes = lift.notes;
    let mut unknown = lift.unknown;
    unknown.sort_by_key(|unknown| unknown.node);
    Lifted { layers, outputs, noise: lift.noise, tables: lift.tables, unknown, notes }
}

/// Removes the layers that no output depends on.
pub(crate) fn retain_read(layers: &mut Vec<Layer>, outputs: &[ValueId]) {
    let mut read: HashSet<ValueId> = outputs.iter().copied().collect();
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
    /// The value whose memory each value is a view of.
    pub(crate) roots: Vec<ValueId>,
    /// Values that share memory which is changed in place, by their root.
    families: HashMap<ValueId, Vec<ValueId>>,
    /// The state that each value is.
    pub(crate) states: HashMap<ValueId, usize>,
    /// Values that stand for another one.
    alias: HashMap<ValueId, ValueId>,
    /// Values whose memory has been changed in place, with what is in it now.
    changed: HashMap<ValueId, ValueId>,
    /// Nodes that a pattern has taken.
    pub(crate) taken: Vec<bool>,
    /// Layers that patterns put in the place of a node.
    planned: BTreeMap<usize, Vec<Layer>>,
    /// Shared values: true if they have been lifted, false while they are.
    shared: HashMap<ValueId, bool>,
    shared_depth: u32,
    /// Values of the language that no value of the model is: their shapes of a sample.
    made: Vec<Vec<u64>>,
    /// Those of them that all samples share.
    made_shared: HashSet<ValueId>,
    /// Values of more axes than the language has.
    wide: HashMap<ValueId, wide::Wide>,
    layers: Vec<Layer>,
    noise: Vec<ValueId>,
    tables: Vec<Table>,
    unknown: Vec<Unknown>,
    notes: Vec<Unknown>,
    /// Rotary positions that were looked at.
    pub(crate) rotations: patterns::Rotations,
    /// Masks that were looked at.
    pub(crate) masks: patterns::Masks,
    /// Tables of relative positions that are layers.
    pub(crate) relative: HashMap<ValueId, ValueId>,
    /// Values that are numbers of tokens, among those that patterns have looked at.
    pub(crate) conditions: patterns::Conditions,
    /// Tables that are layers, by their tokens and numbers.
    pub(crate) looked_up: HashMap<(ValueId, Vec<u64>), ValueId>,
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
        let roots = roots(model);
        let families = families(model, &roots);
        Lift {
            model,
            batch,
            roots,
            families,
            origins: origins(model),
            readers,
            makers,
            states: model.state.iter().enumerate().map(|(index, state)| (state.value, index)).collect(),
            alias: HashMap::new(),
            changed: HashMap::new(),
            taken: vec![false; model.nodes.len()],
            planned: BTreeMap::new(),
            shared: HashMap::new(),
            shared_depth: 0,
            made: Vec::new(),
            made_shared: HashSet::new(),
            wide: HashMap::new(),
            layers: Vec::new(),
            noise: Vec::new(),
            tables: Vec::new(),
            unknown: Vec::new(),
            notes: Vec::new(),
            rotations: HashMap::new(),
            masks: HashMap::new(),
            relative: HashMap::new(),
            conditions: HashMap::new(),
            looked_up: HashMap::new(),
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
        if changes_first(node)
            && let Err(Refused(reason)) = in_place::change(self, index)
        {
            self.report(index, reason);
        }
    }

    /// Lifts one operation.
    fn lift(&mut self, index: usize) -> Result {
        let model = self.model;
        let node = &model.nodes[index];
        let op = node.op.strip_suffix('_').filter(|op| !op.ends_with('_')).unwrap_or(&node.op);
        let is_lifted = weighted::lift(self, index, node, op)?
            || elementwise::lift(self, index, node, op)?
            || axes::lift(self, index, node, op)?
            || lookup::lift(self, index, node, op)?
            || parts::lift(self, index, node, op)?
            || resize::lift(self, index, node, op)?
            || movement::lift(self, index, node, op)?
            || self.created(index, node, op)?;
        if is_lifted { Ok(()) } else { refuse(patterns::reason(node)) }
    }

    fn report(&mut self, index: usize, reason: String) {
        let unknown = self.at(index, reason);
        self.unknown.push(unknown);
    }

    /// Says what the network does in another way than an operation of the model.
    pub(crate) fn note(&mut self, index: usize, reason: String) {
        let note = self.at(index, reason);
        self.notes.push(note);
    }

    fn at(&self, index: usize, reason: String) -> Unknown {
        let node = &self.model.nodes[index];
        let place = if node.path().is_empty() { node.name.clone() } else { node.path().to_string() };
        Unknown { node: index, op: node.op.clone(), place, reason }
    }

    /// Returns the value that a value stands for: after a change in place, the changed one.
    pub(crate) fn resolve(&self, value: ValueId) -> ValueId {
        self.follow(self.changed.get(&value).copied().unwrap_or(value))
    }

    /// Returns the value that a value stands for, whatever has been changed in place since.
    fn follow(&self, mut value: ValueId) -> ValueId {
        while let Some(&other) = self.alias.get(&value) {
            value = other;
        }
        value
    }

    /// Makes a value stand for another one, which [`Lift::operand`] or [`Lift::resolve`] have returned.
    pub(crate) fn same(&mut self, value: ValueId, other: ValueId) {
        let other = self.follow(other);
        if self.follow(value) != other {
            self.alias.insert(value, other);
        }
    }

    /// Makes a value that has been changed in place stand for the changed one. Copies made before the change are as they were.
    fn stand_for(&mut self, value: ValueId, changed: ValueId) {
        self.changed.insert(value, changed);
    }

    /// Adds a layer in the place of a node.
    pub(crate) fn add(&mut self, index: usize, mut layer: Layer) {
        layer.node = index;
        layer.modules = self.model.nodes[index].modules.clone();
        if layer.output >= self.model.values.len() && !layer.inputs.iter().any(|&input| self.is_batched(input)) {
            self.made_shared.insert(layer.output);
        }
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
        self.made.push(if shape.is_empty() { vec![1] } else { shape.to_vec() });
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

    /// True if each sample has a value of its own in the language.
    pub(crate) fn is_batched(&self, value: ValueId) -> bool {
        self.is_sample(value) && !self.made_shared.contains(&value)
    }

    /// True if an operation reads a value, or the network returns it.
    pub(crate) fn is_read(&self, value: ValueId) -> bool {
        !self.readers[value].is_empty() || self.model.outputs.contains(&value)
    }

    /// True if a value comes from random numbers alone.
    pub(crate) fn is_random(&self, value: ValueId) -> bool {
        matches!(self.origins.get(value), Some(Origin::Random))
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
            Some(state) if name.starts_with("running_") || matches!(state.kind, StateKind::Parameter { .. }) => {
                Ok(Some(&state.key))
            }
            Some(_) => refuse(format!("its {name} is a constant")),
            None => refuse(format!("its {name} is computed")),
        }
    }

    /// Returns a value that is joined with others to `output`, with its axes where those of a sample are.
    ///
    /// A value that all samples share may have an axis of one element where others have the batch. A sample has no such axis.
    pub(crate) fn aligned(&mut self, index: usize, value: ValueId, output: ValueId) -> Result<ValueId> {
        let shape = self.aligned_shape(value, output);
        self.shaped(index, value, shape)
    }

    /// Returns a factor of a product, with its axes where those of a sample are.
    fn aligned_product(&mut self, index: usize, value: ValueId, output: ValueId) -> Result<ValueId> {
        let axis = self.batch.axes.get(output).copied().flatten();
        // Rows and columns are never the batch of a value that all samples share.
        let is_before = axis.is_some_and(|axis| axis.dim + 2 < self.model.values[output].shape.len());
        if is_before { self.aligned(index, value, output) } else { self.operand(value) }
    }

    /// Returns the shape of a sample of a value that is joined with others to `output`.
    fn aligned_shape(&self, value: ValueId, output: ValueId) -> Vec<u64> {
        let shape = self.sample(value);
        let axes = &self.batch.axes;
        let (Some(None), Some(Some(axis))) = (axes.get(value), axes.get(output)) else { return shape };
        let from_end = self.model.values[output].shape.len() - axis.dim;
        let full = &self.model.values[value].shape;
        match full.len().checked_sub(from_end) {
            Some(dim) if axis.before * axis.after == 1 && full[dim] == 1 => {
                let mut shape = full.clone();
                shape.remove(dim);
                if shape.is_empty() { vec![1] } else { shape }
            }
            _ => shape,
        }
    }

    /// Returns a value under a shape of as many elements.
    pub(crate) fn shaped(&mut self, index: usize, value: ValueId, shape: Vec<u64>) -> Result<ValueId> {
        if self.sample(value) == shape {
            return self.operand(value);
        }
        let output = self.between(&shape);
        match self.origins.get(value).and_then(Origin::numbers).cloned() {
            Some(tensor) if !self.changed.contains_key(&value) => {
                let (_, numbers) = self.shared_tensor(value, &tensor)?;
                let layer = self.constant(index, value, shape, numbers)?;
                self.add(index, Layer { output, ..layer });
            }
            _ => movement::reshape(self, index, value, output)?,
        }
        Ok(self.resolve(output))
    }

    /// Refuses a value whose batch is not its first dimension alone: layers of maps and signals have the channels there.
    pub(crate) fn needs_plain_batch(&self, value: ValueId) -> Result {
        match self.batch.axes.get(value) {
            Some(Some(axis)) if axis.dim != 0 || axis.before * axis.after != 1 => {
                refuse("its samples are merged with another axis, or are not the first one")
            }
            Some(None) if !self.is_sample(value) => refuse("all samples share what it reads"),
            _ => Ok(()),
        }
    }

    /// Returns a value whose first dimension merges samples with others, as `[C, F, ..]`, and the `F` that are merged. `None` if the batch is
    /// alone. Layers of maps with one axis more then leave `F` as it is. `axes` is the number of axes after the channels.
    pub(crate) fn rows_apart(&mut self, index: usize, value: ValueId, axes: usize) -> Result<Option<(ValueId, u64)>> {
        if self.needs_plain_batch(value).is_ok() {
            return Ok(None);
        }
        let sample = self.sample(value);
        let is_first = self.batch.axes[value].is_some_and(|axis| axis.dim == 0 && axis.before * axis.after != 1);
        if !is_first || axes > 2 || sample.len() != axes + 2 {
            return self.needs_plain_batch(value).map(|()| None);
        }
        let input = self.operand(value)?;
        let mut turned = sample.clone();
        turned.swap(0, 1);
        let rows = self.between(&turned);
        self.add(index, Layer::new("Transpose", input, rows).with(1i64).with(2i64));
        Ok(Some((rows, sample[0])))
    }

    /// Adds a layer of `[C, F, ..]`, and brings its result back to `[F, C, ..]`.
    pub(crate) fn add_rows_together(&mut self, index: usize, layer: Layer, output: ValueId) {
        let mut turned = self.sample(output);
        if turned.len() > 1 {
            turned.swap(0, 1);
        }
        let inside = self.between(&turned);
        self.add(index, Layer { output: inside, ..layer });
        self.add(index, Layer::new("Transpose", inside, output).with(1i64).with(2i64));
    }

    /// Returns the dimension of the language that a dimension of the model is: the batch is 0. `None` if it is the batch, or not there.
    pub(crate) fn dim(&self, value: ValueId, dim: i64) -> Option<i64> {
        let rank = self.model.values[value].shape.len();
        let dim = i64::try_from(crate::batch::index(dim, rank)).ok().filter(|&dim| dim < rank.max(1) as i64)?;
        let axis = self.batch.axes[value].filter(|axis| axis.before * axis.after == 1);
        match axis {
            Some(axis) if axis.dim as i64 == dim => None,
            Some(axis) if (axis.dim as i64) < dim => Some(dim),
            _ => Some(dim + 1),
        }
    }

    /// True if a value is the only one that is made of its state, and one operation reads it.
    pub(crate) fn is_only_use(&self, mut value: ValueId) -> bool {
        for _ in 0..64 {
            if self.states.contains_key(&value) {
                return self.uses(value) <= 1;
            }
            let Some(maker) = self.makers[value].filter(|_| self.readers[value].len() <= 1) else { return false };
            let Some(input) = self.model.nodes[maker].tensors().next() else { return false };
            value = input;
        }
        false
    }

    /// Returns how many operations read a state, under all its names.
    fn uses(&self, value: ValueId) -> usize {
        let Some(&own) = self.states.get(&value) else { return 0 };
        let owner = |index: usize| self.model.state[index].tied_to.unwrap_or(index);
        let all = self.model.state.iter().enumerate().filter(|(index, _)| owner(*index) == owner(own));
        all.map(|(_, state)| self.readers[state.value].len()).sum()
    }

    /// Forgets the readers whose results nothing reads.
    pub(crate) fn forget_taken(&mut self) {
        for readers in &mut self.readers {
            readers.retain(|&reader| !self.taken[reader]);
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
