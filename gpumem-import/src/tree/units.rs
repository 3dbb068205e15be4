//! Finds the modules that can be functions: those with one value in, one out, and all of their parameters inside.

use super::graph::Graph;
use super::words::{is_container, numbered};
use crate::model::ValueId;
use std::collections::{HashMap, HashSet};

/// The deepest nesting of modules that is looked at.
const DEEPEST: usize = 48;
/// The most values from elsewhere that a function reads.
const MOST_EXTRA: usize = 3;
/// The most layers that may have one parameter.
const MOST_USES: usize = 256;

/// A call of a module that is a function, or the whole network.
#[derive(Debug)]
pub(super) struct Unit {
    /// The path of the module.
    pub path: String,
    /// The class of the module, without its package.
    pub class: String,
    /// Its layers and modules, in an order in which it can run.
    pub nodes: Vec<Node>,
    /// The values that it reads: first the one that arrives, then those that are read by name.
    pub inputs: Vec<ValueId>,
    /// The value that it makes. For the network it is not used.
    pub output: ValueId,
    /// True if other calls have the same parameters.
    pub is_shared: bool,
}

/// A layer, or a module that is a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Node {
    Layer(usize),
    Unit(usize),
}

/// All units; the last one is the network.
pub(super) struct Units<'g> {
    pub graph: &'g Graph,
    pub all: Vec<Unit>,
}

impl<'g> Units<'g> {
    pub(super) fn new(graph: &'g Graph) -> Units<'g> {
        let mut units = Units { graph, all: Vec::new() };
        let members: Vec<usize> = (0..graph.layers.len()).collect();
        let nodes = units.split(&members, 0, "");
        let network =
            Unit { path: String::new(), class: String::new(), nodes, inputs: Vec::new(), output: 0, is_shared: false };
        units.all.push(network);
        units
    }

    /// Returns the values that a node reads.
    pub(super) fn inputs(&self, node: Node) -> &[ValueId] {
        match node {
            Node::Layer(layer) => &self.graph.layers[layer].inputs,
            Node::Unit(unit) => &self.all[unit].inputs,
        }
    }

    /// Returns the value that a node makes.
    pub(super) fn output(&self, node: Node) -> ValueId {
        match node {
            Node::Layer(layer) => self.graph.layers[layer].output,
            Node::Unit(unit) => self.all[unit].output,
        }
    }

    /// Returns the nodes of these layers, which are inside of `depth` modules. `prefix` is the path of the function around them.
    fn split(&mut self, members: &[usize], depth: usize, prefix: &str) -> Vec<Node> {
        let (mut nodes, mut groups): (Vec<Node>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
        let mut index: HashMap<&str, usize> = HashMap::new();
        let graph = self.graph;
        for &member in members {
            match graph.layers[member].modules.get(depth).filter(|_| depth < DEEPEST) {
                None => nodes.push(Node::Layer(member)),
                Some(module) => {
                    let group = *index.entry(&module.call).or_insert_with(|| {
                        groups.push(Vec::new());
                        groups.len() - 1
                    });
                    groups[group].push(member);
                }
            }
        }
        for group in groups {
            self.add_module(&group, depth, prefix, &mut nodes);
        }
        nodes.sort_by_key(|&node| graph.makers.get(&self.output(node)).copied());
        nodes
    }

    /// Adds a module as one node if it can be a function, or else what is inside.
    fn add_module(&mut self, members: &[usize], depth: usize, prefix: &str, nodes: &mut Vec<Node>) {
        let module = &self.graph.layers[members[0]].modules[depth];
        let unit = self.unit(members, depth, prefix);
        let inner = self.split(members, depth + 1, if unit.is_some() { &module.path } else { prefix });
        let is_module = |node: &Node| matches!(node, Node::Unit(_));
        let named = inner.iter().filter(|node| self.has_name(**node)).count();
        let is_dissolved = match inner.len() {
            0 | 1 => true,
            // A norm with its activation, or a pool and what follows.
            2 if named < 2 && !inner.iter().any(is_module) => true,
            // A list of modules has their numbers in its path.
            _ => {
                is_container(class_name(&module.class))
                    && inner.iter().filter(|node| self.has_name(**node)).all(is_module)
            }
        };
        match (unit, &inner[..]) {
            // A module with a list of layers and nothing else is better known by its own class.
            (Some(unit), &[Node::Unit(only)])
                if is_container(&self.all[only].class) && !is_container(&unit.class) && !unit.is_shared =>
            {
                let inner = std::mem::take(&mut self.all[only].nodes);
                self.all[only] = Unit { nodes: inner, ..unit };
                nodes.push(Node::Unit(only));
            }
            (Some(unit), _) if !is_dissolved || unit.is_shared && inner.len() > 1 => {
                self.all.push(Unit { nodes: inner, ..unit });
                nodes.push(Node::Unit(self.all.len() - 1));
            }
            _ => nodes.extend(inner),
        }
    }

    fn has_name(&self, node: Node) -> bool {
        match node {
            Node::Layer(layer) => !self.graph.layers[layer].keys.is_empty(),
            Node::Unit(_) => true,
        }
    }

    /// Returns a module as a unit without nodes. `None` if it cannot be a function.
    fn unit(&self, members: &[usize], depth: usize, prefix: &str) -> Option<Unit> {
        let module = &self.graph.layers[members[0]].modules[depth];
        if members.len() < 2 || module.path.is_empty() || !is_inside(&module.path, prefix) {
            return None;
        }
        let inside: HashSet<usize> = members.iter().copied().collect();
        let is_shared = self.sharing(members, depth, &inside)?;
        // Several uses of a function have numbers in their paths, and the parameters are those of the first one.
        if is_shared && numbered(&module.path).is_none_or(|(_, number)| number > 0) {
            return None;
        }
        let (mut inputs, mut outputs): (Vec<ValueId>, Vec<ValueId>) = (Vec::new(), Vec::new());
        for &member in members {
            let layer = &self.graph.layers[member];
            for &input in &layer.inputs {
                let is_own = self.graph.makers.get(&input).is_some_and(|maker| inside.contains(maker));
                if !is_own && !inputs.contains(&input) {
                    inputs.push(input);
                }
            }
            let readers = self.graph.readers.get(&layer.output).map_or(&[][..], |readers| readers);
            if self.graph.outputs.contains(&layer.output) || readers.iter().any(|reader| !inside.contains(reader)) {
                outputs.push(layer.output);
            }
            if inputs.len() > 1 + MOST_EXTRA || outputs.len() > 1 {
                return None;
            }
        }
        // The value that was made last arrives; the others are read by name.
        let latest = |value: &ValueId| (!self.graph.free.contains(value), self.graph.makers.get(value).copied());
        let arriving = inputs.iter().copied().filter(|value| !self.graph.free.contains(value)).max_by_key(latest)?;
        inputs.retain(|&input| input != arriving);
        inputs.insert(0, arriving);
        let [output] = outputs[..] else { return None };
        let class = class_name(&module.class).to_string();
        Some(Unit { path: module.path.clone(), class, nodes: Vec::new(), inputs, output, is_shared })
    }

    /// Returns whether other calls of the module have its parameters. `None` if layers of other modules have them, or if a parameter is
    /// not below the module's path.
    fn sharing(&self, members: &[usize], depth: usize, inside: &HashSet<usize>) -> Option<bool> {
        let path = &self.graph.layers[members[0]].modules[depth].path;
        let (mut own, mut others) = (0, HashMap::new());
        for &member in members {
            let layer = &self.graph.layers[member];
            own += usize::from(!layer.keys.is_empty());
            for (_, key) in &layer.keys {
                if !is_inside(key, path) {
                    return None;
                }
                let owners = self.graph.owners.get(key).filter(|owners| owners.len() <= MOST_USES)?;
                for other in owners.iter().filter(|owner| !inside.contains(owner)) {
                    let module = self.graph.layers[*other].modules.get(depth).filter(|module| module.path == *path)?;
                    *others.entry(&module.call).or_insert(0) += usize::from(key == &layer.keys[0].1);
                }
            }
        }
        // Each other call has all of them.
        others.values().all(|&count| count == own).then_some(!others.is_empty())
    }
}

/// Returns the last part of a class, such as `Conv2d` of `torch.nn.modules.conv.Conv2d`.
fn class_name(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

/// True if a path lies below another one.
fn is_inside(path: &str, around: &str) -> bool {
    around.is_empty() || path.strip_prefix(around).is_some_and(|rest| rest.starts_with('.'))
}
