//! Networks that need no more memory than a model of which a part cannot be said.
//!
//! **Input.** A model with operations that the language does not have. **Output.** Networks in which stand-ins take the place of these
//! operations; the memory that such a network cannot do without is a lower bound for the whole model, once it can be said.
//!
//! A stand-in keeps nothing for the backward pass: it sums up what it reads to one number, and repeats that number in the shape of its
//! output. So the network keeps what its other layers keep, among it the outputs of stand-ins that these read. All parameters that the model
//! trains are in the network, as they need gradients and optimizer state in any case.
//!
//! A missing operation may become a part of a fused layer together with its neighbours, as the softmax of attention does. Then less is kept
//! than each operation alone would keep. So a stand-in takes the place of the neighbours too, as far as `region` says.

mod region;

use crate::batch::Batch;
use crate::lift::{Layer, Lifted, Literal, Open, lift_open};
use crate::model::{Dtype, Model, State, StateKind, Value, ValueId};
use crate::tree::{Network, Options};
use region::Region;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Returns networks that need no more memory than the model, those that come closest first.
///
/// A network may turn out to be none that the language has; the next one is then the answer. The last one has parameters only.
pub fn stand_ins(model: &Model, batch: &Batch, options: &Options) -> Vec<Network> {
    let open = lift_open(model, batch);
    let partial = Partial::new(model, batch, &open).network(options);
    partial.into_iter().chain(parameters_only(model, options)).collect()
}

/// A network of which some layers are stand-ins.
struct Partial<'m> {
    model: &'m Model,
    batch: &'m Batch,
    layers: Vec<Layer>,
    outputs: Vec<ValueId>,
    noise: Vec<ValueId>,
    /// The next value that is not one of the model.
    next: ValueId,
    /// The sums of values that stand-ins read.
    sums: HashMap<ValueId, ValueId>,
    open: &'m Open,
}

impl<'m> Partial<'m> {
    fn new(model: &'m Model, batch: &'m Batch, open: &'m Open) -> Partial<'m> {
        let values = open.lifted.layers.iter().flat_map(|layer| layer.inputs.iter().chain([&layer.output]));
        let next = values.copied().max().map_or(0, |most| most + 1).max(model.values.len());
        Partial {
            model,
            batch,
            layers: Vec::new(),
            outputs: open.lifted.outputs.clone(),
            noise: open.lifted.noise.clone(),
            next,
            sums: HashMap::new(),
            open,
        }
    }

    /// Returns the network. `None` if a stand-in would need a shape or a type that it cannot have.
    fn network(mut self, options: &Options) -> Option<Network> {
        let region = Region::new(self.model, self.open);
        if self.outputs.iter().any(|&output| self.open.is_adrift(output)) {
            return None;
        }
        let mut made: HashSet<ValueId> = HashSet::new();
        for (index, layer) in self.open.lifted.layers.iter().enumerate() {
            if region.holds(index) {
                continue;
            }
            for &input in &layer.inputs {
                self.stand_in(&region, input, &mut made)?;
            }
            made.insert(layer.output);
            self.layers.push(layer.clone());
        }
        for output in self.outputs.clone() {
            self.stand_in(&region, output, &mut made)?;
        }
        let Partial { model, batch, mut layers, outputs, noise, next, open, .. } = self;
        crate::lift::retain_read(&mut layers, &outputs);
        add_parameters(model, &mut layers, next)?;
        let lifted = Lifted { layers, outputs, noise, tables: open.lifted.tables.clone(), ..Lifted::default() };
        Network::flat(model, batch, &lifted, options).ok()
    }

    /// Makes a value of the region, if it is one and not made yet.
    fn stand_in(&mut self, region: &Region, value: ValueId, made: &mut HashSet<ValueId>) -> Option<()> {
        if !region.makes(value) || !made.insert(value) {
            return Some(());
        }
        let shape = self.sample(value)?;
        let mut terms: Vec<ValueId> = Vec::new();
        for input in region.inputs_of(value) {
            terms.extend(self.sum(input));
        }
        let total = match terms[..] {
            [] => return None,
            [one] => one,
            _ => {
                let total = self.fresh();
                self.layers.push(Layer::join("Add", terms, total));
                total
            }
        };
        let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        self.layers.push(Layer::new("Expand", total, value).with(Literal::dims(&sizes)));
        Some(())
    }

    /// Returns the sum of all numbers of a sample. `None` if they are indices, which have no gradient.
    fn sum(&mut self, value: ValueId) -> Option<ValueId> {
        if let Some(&sum) = self.sums.get(&value) {
            return Some(sum);
        }
        if self.model.values.get(value).is_some_and(|value| !value.dtype.is_float()) {
            return None;
        }
        let rank = self.sample(value)?.len();
        let sum = self.fresh();
        self.layers.push(sum_of(value, rank, sum));
        self.sums.insert(value, sum);
        Some(sum)
    }

    fn fresh(&mut self) -> ValueId {
        self.next += 1;
        self.next - 1
    }

    /// Returns the shape of a sample. `None` for a value between two layers, whose shape nothing says.
    fn sample(&self, value: ValueId) -> Option<Vec<u64>> {
        let shape = match self.model.values.get(value) {
            Some(_) => self.batch.sample(value, self.model),
            None => self.open.shape(value)?,
        };
        Some(if shape.is_empty() { vec![1] } else { shape })
    }
}

/// Returns the layer that sums up all numbers of a sample.
fn sum_of(value: ValueId, rank: usize, sum: ValueId) -> Layer {
    let dims: Vec<i64> = (1..=rank as i64).collect();
    Layer::new("Sum", value, sum).with(Literal::dims(&dims))
}

/// The most values that one sum has, so that sums of many parameters are small.
const MOST_TERMS: usize = 32;

/// Adds values up, in sums of a few. Returns the last sum.
fn added(layers: &mut Vec<Layer>, mut terms: Vec<ValueId>, next: &mut ValueId) -> Option<ValueId> {
    while terms.len() > 1 {
        let mut sums = Vec::with_capacity(terms.len().div_ceil(MOST_TERMS));
        for few in terms.chunks(MOST_TERMS) {
            if let [one] = few {
                sums.push(*one);
                continue;
            }
            layers.push(Layer::join("Add", few.to_vec(), *next));
            sums.push(*next);
            *next += 1;
        }
        terms = sums;
    }
    terms.first().copied()
}

/// Returns the layers that sum up the numbers of each of these parameters, and the sums.
fn sums_of_parameters(model: &Model, all: &[&State], next: &mut ValueId) -> (Vec<Layer>, Vec<ValueId>) {
    let (mut layers, mut sums) = (Vec::new(), Vec::new());
    for state in all {
        let shape = &model.values[state.value].shape;
        let sizes: Vec<i64> = if shape.is_empty() { vec![1] } else { shape.iter().map(|&size| size as i64).collect() };
        let trains = state.kind == StateKind::Parameter { trains: true };
        let source = Layer::source("Parameter", *next).with(Literal::dims(&sizes)).key("", Some(&state.key));
        layers.push(source.flag("freeze", !trains));
        layers.push(sum_of(*next, sizes.len(), *next + 1));
        sums.push(*next + 1);
        *next += 2;
    }
    (layers, sums)
}

/// Adds the parameters that no layer has to what a stand-in repeats. `None` if there is no stand-in.
fn add_parameters(model: &Model, layers: &mut Vec<Layer>, mut next: ValueId) -> Option<()> {
    let keys: HashSet<&str> = layers.iter().flat_map(|layer| &layer.keys).map(|(_, key)| &key[..]).collect();
    // A layer of several parameters may name one of them only.
    let folder = |key: &str| key.rsplit_once('.').map(|(folder, _)| folder.to_string());
    let folders: HashSet<String> = keys.iter().filter_map(|key| folder(key)).collect();
    let is_there = |state: &State| {
        keys.contains(&state.key[..]) || folder(&state.key).is_some_and(|folder| folders.contains(&folder))
    };
    let missing: Vec<&State> = parameters(model).into_iter().filter(|state| !is_there(state)).collect();
    let at = layers.iter().position(|layer| layer.kind == "Expand" && layer.keys.is_empty())?;
    if missing.is_empty() {
        return Some(());
    }
    let (mut more, mut terms) = sums_of_parameters(model, &missing, &mut next);
    terms.extend(&layers[at].inputs);
    layers[at].inputs = vec![added(&mut more, terms, &mut next)?];
    layers.splice(at..at, more);
    Some(())
}

/// Returns the parameters from which an output is computed, tied ones once.
fn parameters(model: &Model) -> Vec<&State> {
    let mut read: HashSet<ValueId> = model.outputs.iter().copied().collect();
    for node in model.nodes.iter().rev() {
        if node.outputs.iter().any(|output| read.contains(output)) {
            read.extend(node.tensors());
        }
    }
    let owner = |state: &State| state.tied_to.map_or(state.value, |owner| model.state[owner].value);
    let owners: BTreeSet<ValueId> = model.state.iter().filter(|state| read.contains(&state.value)).map(owner).collect();
    let is_one = |state: &&State| {
        let has_numbers = model.values[state.value].dtype.is_float() && model.values[state.value].elements() > Some(0);
        matches!(state.kind, StateKind::Parameter { .. }) && owners.contains(&state.value) && has_numbers
    };
    model.state.iter().filter(is_one).collect()
}

/// Returns a network of the parameters alone, whose input and output are one number.
fn parameters_only(model: &Model, options: &Options) -> Option<Network> {
    let size = model.batch.unwrap_or(2).max(2);
    let number = Value { name: "x".into(), dtype: Dtype::F32, shape: vec![size, 1], strides: None };
    let mut own = Model { nodes: Vec::new(), batch: Some(size), ..model.clone() };
    let (input, output) = (own.values.len(), own.values.len() + 1);
    own.values.extend([number.clone(), Value { name: "y".into(), ..number }]);
    (own.inputs, own.outputs) = (vec![input], vec![output]);
    let batch = Batch::follow(&Model { inputs: vec![input], ..own.clone() })?;
    let mut batch = batch;
    batch.axes[output] = batch.axes[input];
    let mut next = output + 1;
    let (mut layers, mut terms) = sums_of_parameters(model, &parameters(model), &mut next);
    terms.push(input);
    let total = added(&mut layers, terms, &mut next)?;
    layers.push(Layer::new("Flatten", total, output));
    let lifted = Lifted { layers, outputs: vec![output], ..Lifted::default() };
    let options = Options { loss: Some("Mse".into()), ..options.clone() };
    Network::flat(&own, &batch, &lifted, &options).ok()
}
