//! Writes the modules of a model that can be said as networks of their own, if the whole cannot.

use super::{Network, Options};
use crate::batch::Batch;
use crate::lift::{Layer, Lifted};
use crate::model::{Model, ValueId};
use std::collections::{HashMap, HashSet};

/// The deepest modules that are looked at.
const DEEPEST: usize = 16;
/// The most networks that are written.
const MOST: usize = 32;

/// A module that can be said.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The paths of all modules that are equal but for names and numbers of their parameters' places; the first one is written.
    pub paths: Vec<String>,
    /// The first one as a network. Its names are those in the whole model, so that it loads the model's weights.
    pub network: Network,
}

/// Returns the largest modules that can be said, those with the most layers first. Equal modules are written once.
pub fn parts(model: &Model, batch: &Batch, lifted: &Lifted, options: &Options) -> Vec<Said> {
    let found = Modules::new(model, lifted).modules();
    let mut said: Vec<(Vec<String>, Network, String)> = Vec::new();
    for (path, members) in found {
        let Some((model, lifted)) = alone(model, lifted, &members, &path) else { continue };
        // Only the places of parameters differ from module to module.
        let text = contents(&lifted, &path);
        if let Some((paths, ..)) = said.iter_mut().find(|(.., other)| *other == text) {
            paths.push(path);
            continue;
        }
        if said.len() == MOST {
            continue;
        }
        let own = Options { name: path.clone(), loss: Some("Mse".into()), ..options.clone() };
        let Ok(mut network) = Network::new(&model, batch, &lifted, &own) else { continue };
        network.name = super::types::struct_name(&path.replace('.', " "));
        network.docs[0] = format!("The module `{path}` of `{}` ({}).", options.name, model.source);
        said.push((vec![path], network, text));
    }
    said.into_iter().map(|(paths, network, _)| Said { paths, network }).collect()
}

struct Modules<'m> {
    lifted: &'m Lifted,
    /// Calls of modules with an operation that cannot be said.
    broken: HashSet<&'m str>,
    readers: HashMap<ValueId, Vec<usize>>,
    makers: HashMap<ValueId, usize>,
}

impl<'m> Modules<'m> {
    fn new(model: &'m Model, lifted: &'m Lifted) -> Modules<'m> {
        let nodes = lifted.unknown.iter().filter_map(|unknown| model.nodes.get(unknown.node));
        let broken = nodes.flat_map(|node| node.modules.iter().map(|module| &module.call[..])).collect();
        let mut readers: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for (index, layer) in lifted.layers.iter().enumerate() {
            for &input in &layer.inputs {
                readers.entry(input).or_default().push(index);
            }
        }
        let makers = lifted.layers.iter().enumerate().map(|(index, layer)| (layer.output, index)).collect();
        Modules { lifted, broken, readers, makers }
    }

    /// Returns the outermost modules without such an operation, with one value in and one out: their paths and layers.
    fn modules(&self) -> Vec<(String, Vec<usize>)> {
        let mut found: Vec<(String, Vec<usize>)> = Vec::new();
        let mut taken = vec![false; self.lifted.layers.len()];
        for depth in 0..DEEPEST {
            let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
            let mut places: HashMap<&str, usize> = HashMap::new();
            for (index, layer) in self.lifted.layers.iter().enumerate().filter(|(index, _)| !taken[*index]) {
                let Some(module) = layer.modules.get(depth) else { continue };
                if module.path.is_empty() || self.broken.contains(&module.call[..]) {
                    continue;
                }
                let place = *places.entry(&module.call).or_insert_with(|| {
                    groups.push((&module.path, Vec::new()));
                    groups.len() - 1
                });
                groups[place].1.push(index);
            }
            for (path, members) in groups {
                if members.len() > 1 && self.is_closed(&members) {
                    members.iter().for_each(|&member| taken[member] = true);
                    found.push((path.to_string(), members));
                }
            }
        }
        found.sort_by_key(|(_, members)| std::cmp::Reverse(members.len()));
        found
    }

    /// True if layers read one value from elsewhere, and others read one of theirs.
    fn is_closed(&self, members: &[usize]) -> bool {
        let inside: HashSet<usize> = members.iter().copied().collect();
        inputs(&self.lifted.layers, members, &self.makers).len() == 1
            && outputs(self.lifted, members, &inside, &self.readers).len() == 1
    }
}

fn inputs(layers: &[Layer], members: &[usize], makers: &HashMap<ValueId, usize>) -> HashSet<ValueId> {
    let inside: HashSet<usize> = members.iter().copied().collect();
    let read = members.iter().flat_map(|&member| &layers[member].inputs).copied();
    read.filter(|input| makers.get(input).is_none_or(|maker| !inside.contains(maker))).collect()
}

fn outputs(
    lifted: &Lifted,
    members: &[usize],
    inside: &HashSet<usize>,
    readers: &HashMap<ValueId, Vec<usize>>,
) -> HashSet<ValueId> {
    let made = members.iter().map(|&member| lifted.layers[member].output);
    let leaves = |value: &ValueId| match readers.get(value) {
        None => true,
        Some(readers) => lifted.outputs.contains(value) || readers.iter().any(|reader| !inside.contains(reader)),
    };
    made.filter(leaves).collect()
}

/// Returns layers as a model of their own. `None` if their input is a value that the file does not have.
fn alone(model: &Model, lifted: &Lifted, members: &[usize], path: &str) -> Option<(Model, Lifted)> {
    let search = Modules::new(model, lifted);
    let inside: HashSet<usize> = members.iter().copied().collect();
    let input = inputs(&lifted.layers, members, &search.makers).into_iter().next()?;
    let output = outputs(lifted, members, &inside, &search.readers).into_iter().next()?;
    if input >= model.values.len() || output >= model.values.len() {
        return None;
    }
    let layers = members.iter().map(|&member| lifted.layers[member].clone()).collect();
    let mut own = Model { inputs: vec![input], outputs: vec![output], nodes: Vec::new(), ..model.clone() };
    own.state.retain(|state| {
        state.tied_to.is_none() && state.key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
    });
    Some((own, Lifted { layers, outputs: vec![output], ..Lifted::default() }))
}

/// Returns a text that is equal for modules that differ only in the place of their parameters.
fn contents(lifted: &Lifted, path: &str) -> String {
    let mut numbers: HashMap<ValueId, usize> = HashMap::new();
    let mut text = String::new();
    for layer in &lifted.layers {
        let mut number = |value: ValueId| {
            let next = numbers.len();
            *numbers.entry(value).or_insert(next)
        };
        let inputs: Vec<usize> = layer.inputs.iter().map(|&input| number(input)).collect();
        let output = number(layer.output);
        let keys: Vec<&str> = layer.keys.iter().map(|(_, key)| key.strip_prefix(path).unwrap_or(key)).collect();
        text += &format!(
            "{}{:?}{:?}{:?}{inputs:?}{output}{keys:?}",
            layer.kind, layer.arguments, layer.options, layer.flags
        );
    }
    text
}
