//! The layers that stand-ins replace: operations that cannot be said, and their neighbours.
//!
//! A layer is *firm* if it has a matrix or a kernel of its own. Whatever is next to it, its backward pass reads its input, so it stays. Every
//! other layer may become a part of one with a missing operation, if it is in the same module or near.

use crate::lift::{Layer, Open};
use crate::model::{Model, ValueId};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The most layers between a missing operation and one that may become a part of it, in other modules.
const NEAR: usize = 3;

/// An operation that stand-ins replace.
struct Item {
    inputs: Vec<ValueId>,
}

/// The layers that stand-ins replace.
pub(super) struct Region {
    /// The layers among those that were lifted.
    layers: HashSet<usize>,
    items: Vec<Item>,
    /// The item that makes each value.
    makers: HashMap<ValueId, usize>,
    /// Values that something makes, or that are given.
    known: HashSet<ValueId>,
}

impl Region {
    /// Finds the layers around all operations that cannot be said.
    pub(super) fn new(model: &Model, open: &Open) -> Region {
        let mut growth = Growth::new(model, open);
        growth.grow();
        let layers = growth.inside;
        let mut region = Region { layers, items: Vec::new(), makers: HashMap::new(), known: HashSet::new() };
        for hole in &open.holes {
            region.add(&hole.inputs, &hole.outputs);
        }
        let all = &open.lifted.layers;
        for index in (0..all.len()).filter(|index| region.layers.contains(index)).collect::<Vec<_>>() {
            region.add(&all[index].inputs, &[all[index].output]);
        }
        region.known.extend(model.inputs.iter().chain(&open.lifted.noise));
        region.known.extend(all.iter().map(|layer| layer.output));
        region
    }

    fn add(&mut self, inputs: &[ValueId], outputs: &[ValueId]) {
        for &output in outputs {
            self.makers.insert(output, self.items.len());
        }
        self.items.push(Item { inputs: inputs.to_vec() });
    }

    /// True if stand-ins replace a layer.
    pub(super) fn holds(&self, layer: usize) -> bool {
        self.layers.contains(&layer)
    }

    /// True if an operation that is replaced makes a value, or nothing does.
    pub(super) fn makes(&self, value: ValueId) -> bool {
        self.makers.contains_key(&value) || !self.known.contains(&value)
    }

    /// Returns the values from outside that reach a value inside.
    pub(super) fn inputs_of(&self, value: ValueId) -> BTreeSet<ValueId> {
        let (mut found, mut seen, mut left) = (BTreeSet::new(), HashSet::new(), vec![value]);
        while let Some(value) = left.pop() {
            if !seen.insert(value) {
                continue;
            }
            match self.makers.get(&value) {
                Some(&maker) => left.extend(&self.items[maker].inputs),
                None if self.known.contains(&value) => drop(found.insert(value)),
                None => {}
            }
        }
        found
    }
}

/// The search for the layers of a region.
struct Growth<'m> {
    model: &'m Model,
    open: &'m Open,
    readers: HashMap<ValueId, Vec<usize>>,
    makers: HashMap<ValueId, usize>,
    /// The number of dimensions of each parameter, by its key.
    ranks: HashMap<&'m str, usize>,
    inside: HashSet<usize>,
}

impl<'m> Growth<'m> {
    fn new(model: &'m Model, open: &'m Open) -> Growth<'m> {
        let mut readers: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for (index, layer) in open.lifted.layers.iter().enumerate() {
            for &input in &layer.inputs {
                readers.entry(input).or_default().push(index);
            }
        }
        let makers = open.lifted.layers.iter().enumerate().map(|(index, layer)| (layer.output, index)).collect();
        let ranks = model.state.iter().map(|state| (&state.key[..], model.values[state.value].shape.len())).collect();
        Growth { model, open, readers, makers, ranks, inside: HashSet::new() }
    }

    fn grow(&mut self) {
        for hole in &self.open.holes {
            let call = self.model.nodes[hole.node].modules.last().map(|module| &module.call[..]);
            self.add_around(hole.inputs.iter().chain(&hole.outputs).copied().collect(), call);
        }
        self.add_adrift();
        self.add_readers_of_indices();
    }

    /// Adds the layers of values whose samples nobody can count.
    fn add_adrift(&mut self) {
        let all = self.open.lifted.layers.iter().enumerate();
        let is_adrift =
            |layer: &Layer| layer.inputs.iter().chain([&layer.output]).any(|&value| self.open.is_adrift(value));
        let adrift: Vec<usize> = all.filter(|(_, layer)| is_adrift(layer)).map(|(index, _)| index).collect();
        self.inside.extend(adrift);
    }

    /// Adds the layers around values that are in a module, and those that are near.
    fn add_around(&mut self, values: Vec<ValueId>, call: Option<&str>) {
        let mut distances: HashMap<usize, usize> = HashMap::new();
        let mut left: Vec<(ValueId, usize)> = values.into_iter().map(|value| (value, 0)).collect();
        while let Some((value, distance)) = left.pop() {
            let around = self.readers.get(&value).into_iter().flatten().chain(self.makers.get(&value));
            for &index in around {
                let layer = &self.open.lifted.layers[index];
                let is_inside = call.is_some() && layer.modules.last().map(|module| &module.call[..]) == call;
                let here = if is_inside { 0 } else { distance + 1 };
                if here > NEAR || self.is_firm(layer) || distances.get(&index).is_some_and(|&known| known <= here) {
                    continue;
                }
                distances.insert(index, here);
                self.inside.insert(index);
                left.extend(layer.inputs.iter().chain([&layer.output]).map(|&value| (value, here)));
            }
        }
    }

    /// True if a layer stays next to a missing operation.
    fn is_firm(&self, layer: &Layer) -> bool {
        let has_matrix = layer.keys.iter().any(|(_, key)| self.ranks.get(&key[..]).is_some_and(|&rank| rank > 1));
        // A value that all samples share is not repeated for each.
        layer.inputs.is_empty() || has_matrix || self.open.is_shared(layer.output)
    }

    /// Adds the layers that read indices of the region, since stand-ins make numbers.
    fn add_readers_of_indices(&mut self) {
        let made = self.open.holes.iter().flat_map(|hole| hole.outputs.iter().copied());
        let inside = self.inside.iter().map(|&index| self.open.lifted.layers[index].output);
        let mut left: Vec<ValueId> = made.chain(inside).collect();
        while let Some(value) = left.pop() {
            if self.model.values.get(value).is_none_or(|value| value.dtype.is_float()) {
                continue;
            }
            for &reader in self.readers.get(&value).into_iter().flatten() {
                if self.inside.insert(reader) {
                    left.push(self.open.lifted.layers[reader].output);
                }
            }
        }
    }
}
