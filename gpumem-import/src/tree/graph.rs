//! Prepares lifted layers for a tree: concatenations that grow, and constants that several layers read.

use super::Refusal;
use crate::lift::{Layer, Lifted};
use crate::model::{Model, Module, ValueId};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// The longest text of a constant that is written once for each layer that reads it.
const SHORT: usize = 40;
/// The most summands of one sum.
const MOST_SUMMANDS: usize = 64;

/// Layers with questions about them.
pub(super) struct Graph {
    /// The layers, each after those that it reads.
    pub layers: Vec<Layer>,
    /// The values that the network returns.
    pub outputs: Vec<ValueId>,
    /// The values that are given: inputs of the model, and noise that it draws.
    pub given: Vec<ValueId>,
    /// The layer that makes each value.
    pub makers: HashMap<ValueId, usize>,
    /// The layers that read each value.
    pub readers: HashMap<ValueId, Vec<usize>>,
    /// The layers that have each key.
    pub owners: HashMap<String, Vec<usize>>,
    /// Values that no input reaches.
    pub free: HashSet<ValueId>,
}

impl Graph {
    pub(super) fn new(lifted: &Lifted, model: &Model) -> Graph {
        let mut layers = simplified(lifted, model).layers;
        copy_constants(&mut layers, &lifted.outputs);
        let mut graph = Graph {
            layers,
            outputs: lifted.outputs.clone(),
            given: model.inputs.iter().chain(&lifted.noise).copied().collect(),
            makers: HashMap::new(),
            readers: HashMap::new(),
            owners: HashMap::new(),
            free: HashSet::new(),
        };
        for (index, layer) in graph.layers.iter().enumerate() {
            graph.makers.insert(layer.output, index);
            for &input in &layer.inputs {
                graph.readers.entry(input).or_default().push(index);
            }
            for (_, key) in &layer.keys {
                graph.owners.entry(key.clone()).or_default().push(index);
            }
            if layer.inputs.iter().all(|input| graph.free.contains(input)) {
                graph.free.insert(layer.output);
            }
        }
        graph.move_free_layers();
        graph.move_concatenations();
        graph
    }

    /// Returns the parameters whose keys are not those that the network has for them: their names in the network, and their keys.
    pub(super) fn renamed(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for layer in &self.layers {
            let Some((place, false)) = Graph::place(layer) else { continue };
            let first =
                |key: &String| self.owners.get(key).and_then(|owners| owners.first()).map(|&owner| &self.layers[owner]);
            for (name, key) in
                layer.keys.iter().filter(|(_, key)| first(key).is_some_and(|owner| std::ptr::eq(owner, layer)))
            {
                let own = if place.is_empty() { (*name).to_string() } else { format!("{place}.{name}") };
                if own != *key {
                    all.push((own, key.clone()));
                }
            }
        }
        all
    }

    /// Refuses layers that read what no layer makes, or what a later one makes.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let is_made = |value: &ValueId, before: usize| match self.makers.get(value) {
            Some(&maker) => maker < before,
            None => self.given.contains(value),
        };
        for (index, layer) in self.layers.iter().enumerate() {
            if !layer.inputs.iter().all(|input| is_made(input, index)) {
                return Err(Refusal(format!("a `{}` reads a value that no layer before it makes", layer.kind)));
            }
        }
        match self.outputs.iter().all(|output| is_made(output, self.layers.len())) {
            true => Ok(()),
            false => Err(Refusal("no layer makes an output".into())),
        }
    }

    /// True if a value is computed from another one.
    pub(super) fn reaches(&self, from: ValueId, to: ValueId) -> bool {
        let mut reached: HashSet<ValueId> = HashSet::from([from]);
        for layer in &self.layers {
            if layer.inputs.iter().any(|input| reached.contains(input)) {
                reached.insert(layer.output);
            }
        }
        reached.contains(&to)
    }

    /// Moves layers that no input reaches into the innermost module around all layers that read them.
    fn move_free_layers(&mut self) {
        for index in (0..self.layers.len()).rev() {
            let output = self.layers[index].output;
            if !self.free.contains(&output) {
                continue;
            }
            let readers = self.readers.get(&output).map_or(&[][..], |readers| readers);
            let mut modules: Option<Rc<[Module]>> = None;
            for &reader in readers {
                let other = &self.layers[reader].modules;
                modules = Some(match modules {
                    None => other.clone(),
                    Some(modules) => common(&modules, other),
                });
            }
            if self.outputs.contains(&output) {
                modules = Some(Rc::new([]));
            }
            if let Some(modules) = modules {
                self.layers[index].modules = modules;
            }
        }
    }

    /// Moves concatenations that a later one goes on with out of the modules in which they are read first.
    fn move_concatenations(&mut self) {
        for index in (0..self.layers.len()).rev() {
            let readers = self.readers.get(&self.layers[index].output).map_or(&[][..], |readers| readers);
            let goes_on = |reader: &usize| {
                let reader = &self.layers[*reader];
                reader.kind == "Concat" && reader.inputs.first() == Some(&self.layers[index].output)
            };
            if self.layers[index].kind == "Concat" && readers.len() > 1 && readers.iter().any(goes_on) {
                let around = readers.iter().map(|&reader| &self.layers[reader].modules);
                let modules = around.fold(self.layers[index].modules.clone(), |modules, other| common(&modules, other));
                self.layers[index].modules = modules;
            }
        }
    }

    /// Returns the place of a layer's parameters in the state dict, as a path and whether that is of its only parameter.
    ///
    /// `None` if it has no parameters.
    pub(super) fn place(layer: &Layer) -> Option<(String, bool)> {
        let (name, key) = layer.keys.first()?;
        match key.strip_suffix(name) {
            Some("") if !name.is_empty() => Some((String::new(), false)),
            Some(path) if !name.is_empty() && path.ends_with('.') => Some((path[..path.len() - 1].to_string(), false)),
            // A parameter with a name of its own.
            _ if layer.keys.len() == 1 => Some((key.clone(), true)),
            _ => Some((key.rsplit_once('.').map_or(String::new(), |(path, _)| path.to_string()), false)),
        }
    }
}

/// Returns lifted layers with one in the place of several: a concatenation goes on with an earlier one, a sum has all of its summands, and
/// of changes of shape in a row the last one stays.
pub fn simplified(lifted: &Lifted, model: &Model) -> Lifted {
    let mut layers = lifted.layers.clone();
    grow_concatenations(&mut layers);
    join_sums(&mut layers, &lifted.outputs, model);
    join_reshapes(&mut layers, &lifted.outputs);
    Lifted { layers, ..lifted.clone() }
}

fn common(a: &Rc<[Module]>, b: &Rc<[Module]>) -> Rc<[Module]> {
    let count = a.iter().zip(b.iter()).take_while(|(a, b)| a.call == b.call).count();
    if count == a.len() { a.clone() } else { a[..count].into() }
}

/// Replaces the beginning of a concatenation by an earlier one of the same values, as in densely connected stages.
fn grow_concatenations(layers: &mut [Layer]) {
    let mut made: HashMap<(Vec<ValueId>, String), ValueId> = HashMap::new();
    for layer in layers.iter_mut().filter(|layer| layer.kind == "Concat") {
        let options = format!("{:?}", layer.options);
        let whole = layer.inputs.clone();
        // The longest beginning comes first.
        for length in (2..whole.len()).rev() {
            if let Some(&prefix) = made.get(&(whole[..length].to_vec(), options.clone())) {
                layer.inputs.splice(..length, [prefix]);
                break;
            }
        }
        if whole.len() <= 512 {
            made.entry((whole, options)).or_insert(layer.output);
        }
    }
}

/// Makes one sum of values of one shape of several that only add up, as in `a + b + c`.
fn join_sums(layers: &mut Vec<Layer>, outputs: &[ValueId], model: &Model) {
    let mut reads: HashMap<ValueId, usize> = HashMap::new();
    for input in layers.iter().flat_map(|layer| &layer.inputs).chain(outputs) {
        *reads.entry(*input).or_default() += 1;
    }
    let shape = |value: ValueId| model.values.get(value).map(|value| &value.shape);
    let mut sums: HashMap<ValueId, usize> = HashMap::new();
    let mut gone = vec![false; layers.len()];
    for index in 0..layers.len() {
        let layer = &layers[index];
        let is_plain = |layer: &Layer| layer.kind == "Add" && layer.options.is_empty() && layer.flags.is_empty();
        if !is_plain(layer) {
            continue;
        }
        let output = layer.output;
        let is_even = layer.inputs.iter().all(|&input| shape(input).is_some() && shape(input) == shape(output));
        if !is_even {
            continue;
        }
        // The first summand only: sums are added up from the left.
        let first =
            layer.inputs.first().and_then(|first| sums.get(first).copied().filter(|_| reads.get(first) == Some(&1)));
        if let Some(inner) =
            first.filter(|&inner| common(&layers[inner].modules, &layer.modules).len() == layer.modules.len())
        {
            let mut inputs = layers[inner].inputs.clone();
            let rest = &layer.inputs[1..];
            if !rest.iter().any(|value| inputs.contains(value)) && inputs.len() < MOST_SUMMANDS {
                inputs.extend(rest);
                gone[inner] = true;
                layers[index].inputs = inputs;
            }
        }
        sums.insert(output, index);
    }
    let mut gone = gone.into_iter();
    layers.retain(|_| !gone.next().unwrap_or(false));
}

/// Removes changes of shape that only another one reads.
fn join_reshapes(layers: &mut Vec<Layer>, outputs: &[ValueId]) {
    let mut reads: HashMap<ValueId, usize> = HashMap::new();
    for input in layers.iter().flat_map(|layer| &layer.inputs).chain(outputs) {
        *reads.entry(*input).or_default() += 1;
    }
    let is_view = |layer: &Layer| matches!(layer.kind, "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze");
    let views: HashMap<ValueId, ValueId> = layers
        .iter()
        .filter(|layer| is_view(layer) && reads.get(&layer.output) == Some(&1))
        .filter_map(|layer| Some((layer.output, *layer.inputs.first()?)))
        .collect();
    let mut gone: HashSet<ValueId> = HashSet::new();
    for layer in layers.iter_mut().filter(|layer| matches!(layer.kind, "Reshape" | "Flatten")) {
        // Each view before it reads an earlier value, so there are at most as many as layers.
        for _ in 0..views.len() {
            let Some(input) = layer.inputs.first_mut() else { break };
            let Some(&before) = views.get(input) else { break };
            gone.insert(std::mem::replace(input, before));
        }
    }
    layers.retain(|layer| !gone.contains(&layer.output));
}

/// Writes short constants once for each layer that reads them.
fn copy_constants(layers: &mut Vec<Layer>, outputs: &[ValueId]) {
    let mut next =
        layers.iter().flat_map(|layer| layer.inputs.iter().chain([&layer.output])).max().map_or(0, |most| most + 1);
    let is_short = |layer: &Layer| {
        let text: usize = layer.arguments.iter().map(|argument| argument.to_string().len()).sum();
        layer.kind == "Constant" && text <= SHORT && !outputs.contains(&layer.output)
    };
    let constants: HashMap<ValueId, Layer> =
        layers.iter().filter(|layer| is_short(layer)).map(|layer| (layer.output, layer.clone())).collect();
    if constants.is_empty() {
        return;
    }
    let mut used: HashSet<ValueId> = HashSet::new();
    let mut all = Vec::with_capacity(layers.len());
    for mut layer in std::mem::take(layers) {
        for input in &mut layer.inputs {
            // The first reader keeps the constant itself.
            if let Some(constant) = constants.get(input).filter(|_| !used.insert(*input)) {
                *input = next;
                all.push(Layer { output: next, ..constant.clone() });
                next += 1;
            }
        }
        all.push(layer);
    }
    *layers = all;
}
