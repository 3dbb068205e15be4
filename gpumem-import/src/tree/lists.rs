//! Writes the nodes of a function as a list of elements.

use super::Refusal;
use super::element::{Argument, Body, Call, Element, Name, Placed, Value, visit, visit_mut};
use super::flow::Flow;
use super::graph::Graph;
use super::units::{Node, Unit, Units};
use super::words::{Names, identifier};
use crate::lift::{Layer, Literal};
use crate::model::ValueId;
use std::collections::{HashMap, HashSet};

/// A branch that is read by name is written inside of a join if it has so few nodes.
const SHORT: usize = 3;

/// Returns the contents of a unit as a list. `inputs` are those of the network, if the unit is the whole one.
///
/// A call has the index of its unit in place of a function.
pub(super) fn body(units: &Units<'_>, unit: &Unit, inputs: &[ValueId]) -> Result<Body, Refusal> {
    let is_network = unit.inputs.is_empty();
    let (arriving, outputs) = match is_network {
        true => (inputs.first().copied(), units.graph.outputs.clone()),
        false => (unit.inputs.first().copied(), vec![unit.output]),
    };
    let given = if is_network { inputs } else { &unit.inputs[1..] };
    let mut given: Vec<ValueId> =
        given.iter().copied().filter(|value| is_network || Some(*value) != arriving).collect();
    if is_network && inputs.len() < 2 {
        given.clear();
    }
    let flow = Flow::new(units, &unit.nodes, arriving, &given, &outputs);
    let mut writer = Writer { flow, unit, placed: given.iter().copied().collect(), lets: Lets::default() };
    writer.find_lets()?;
    let mut elements = Vec::new();
    if let Some(arriving) = arriving {
        writer.placed.insert(arriving);
        if !given.contains(&arriving) && !is_network {
            elements.push(Element::Tap(arriving));
        }
    }
    let mut current = arriving;
    // Values that are read by name come first, in the order in which they are made.
    for &node in &unit.nodes {
        let output = units.output(node);
        if writer.flow.named.contains(&output) && !writer.placed.contains(&output) {
            writer.write(output, current, &mut elements);
            current = Some(output);
        }
    }
    match &outputs[..] {
        &[output] => writer.write(output, current, &mut elements),
        outputs => {
            let mut branches = Vec::new();
            for &output in outputs {
                let mut branch = Vec::new();
                writer.write(output, None, &mut branch);
                branches.push(branch);
            }
            elements.push(Element::Outputs(branches));
        }
    }
    let references =
        References { inputs: if is_network { inputs } else { &[] }, blocks: if is_network { &[] } else { &given } };
    let mut body = Body { lets: std::mem::take(&mut writer.lets.all), elements, taps: Vec::new() };
    references.resolve(&mut body, units, unit);
    Ok(body)
}

struct Writer<'u> {
    flow: Flow<'u>,
    unit: &'u Unit,
    /// Values that a list has made already.
    placed: HashSet<ValueId>,
    lets: Lets,
}

/// Layers and calls that are used several times.
#[derive(Default)]
struct Lets {
    all: Vec<(String, Element)>,
    names: Names,
    /// The `let` of each node, and whether the node is a transposed use of it.
    of: HashMap<usize, (usize, bool)>,
}

impl Writer<'_> {
    /// Writes the elements that make `value` out of `current`.
    fn write(&mut self, value: ValueId, current: Option<ValueId>, list: &mut Vec<Element>) {
        // From the value back to one that is there.
        let (mut spine, mut at) = (Vec::new(), value);
        let begins = loop {
            if Some(at) == current {
                break current;
            }
            let maker = self.flow.makers.get(&at).copied();
            let Some(maker) = maker.filter(|_| !self.placed.contains(&at)) else {
                list.push(Element::From(at));
                break Some(at);
            };
            spine.push(maker);
            match self.before(maker, current) {
                Some(before) => at = before,
                None => break current,
            }
        };
        let mut arriving = begins;
        for maker in spine.into_iter().rev() {
            let element = self.element(maker, arriving);
            let output = self.flow.units.output(self.flow.nodes[maker]);
            list.push(element);
            list.push(Element::Tap(output));
            self.placed.insert(output);
            arriving = Some(output);
        }
    }

    /// Returns the value that arrives at a node. `None` if it does not matter, since all branches begin with a value of their own.
    fn before(&self, maker: usize, current: Option<ValueId>) -> Option<ValueId> {
        let node = self.flow.nodes[maker];
        let inputs = self.flow.units.inputs(node);
        match node {
            Node::Unit(_) => return inputs.first().copied(),
            Node::Layer(layer) if !self.flow.units.graph.layers[layer].is_join => return inputs.first().copied(),
            Node::Layer(_) => {}
        }
        if let Some(current) = current.filter(|current| inputs.contains(current)) {
            return Some(current);
        }
        let is_new = |value: &ValueId| !self.placed.contains(value) && !self.flow.free.contains(value);
        let new: Vec<ValueId> = inputs.iter().copied().filter(is_new).collect();
        if let [only] = new[..]
            && inputs.iter().any(|input| *input != only && self.placed.contains(input))
            && self.is_short(only, current)
        {
            return None;
        }
        match new.is_empty() {
            true => None,
            false => self.flow.common(inputs.iter().copied().filter(|input| !self.flow.free.contains(input))),
        }
    }

    /// True if few nodes lie between a value that is there and this one.
    fn is_short(&self, value: ValueId, current: Option<ValueId>) -> bool {
        let mut at = value;
        for _ in 0..=SHORT {
            let maker = self.flow.makers.get(&at).filter(|_| !self.placed.contains(&at) && Some(at) != current);
            let Some(before) = maker.and_then(|&maker| self.before_plain(maker)) else { return true };
            at = before;
        }
        false
    }

    fn before_plain(&self, maker: usize) -> Option<ValueId> {
        let inputs = self.flow.units.inputs(self.flow.nodes[maker]);
        self.flow.common(inputs.iter().copied().filter(|input| !self.flow.free.contains(input)))
    }

    /// Returns the element of a node, with its branches.
    fn element(&mut self, maker: usize, arriving: Option<ValueId>) -> Element {
        let node = self.flow.nodes[maker];
        let graph = self.flow.units.graph;
        if let Some(&(binding, is_tied)) = self.lets.of.get(&maker) {
            let Node::Layer(layer) = node else { return Element::Use(binding) };
            return match is_tied {
                true => Element::Tied(binding, Box::new(tied(&graph.layers[layer], &self.unit.path))),
                false => Element::Use(binding),
            };
        }
        match node {
            Node::Unit(unit) => {
                let inner = &self.flow.units.all[unit];
                let extra = inner.inputs.iter().skip(1).map(|&value| {
                    let mut block = Vec::new();
                    self.write(value, None, &mut block);
                    Argument::Block(block)
                });
                let arguments = extra.collect();
                Element::Call(Box::new(call(unit, inner, &self.unit.path, arguments)))
            }
            Node::Layer(layer) => {
                let layer = &graph.layers[layer];
                let branches = layer.is_join.then(|| {
                    let branch = |&input: &ValueId| {
                        let mut branch = Vec::new();
                        self.write(input, arriving, &mut branch);
                        branch
                    };
                    layer.inputs.iter().map(branch).collect()
                });
                Element::Layer(Box::new(placed(layer, branches, &self.unit.path)))
            }
        }
    }

    /// Finds nodes that have the same parameters.
    fn find_lets(&mut self) -> Result<(), Refusal> {
        let graph = self.flow.units.graph;
        let mut first: HashMap<String, usize> = HashMap::new();
        for (index, &node) in self.flow.nodes.iter().enumerate() {
            let key = match node {
                Node::Layer(layer) => graph.layers[layer].keys.first().map(|(_, key)| key.clone()),
                Node::Unit(unit) => {
                    let unit = &self.flow.units.all[unit];
                    unit.is_shared.then(|| unit.path.clone())
                }
            };
            let Some(key) = key else { continue };
            let Some(&owner) = first.get(&key) else {
                if matches!(node, Node::Layer(layer) if graph.layers[layer].kind == "Tied") {
                    return Err(Refusal(format!("`{key}` is tied to a layer that is not there")));
                }
                first.insert(key, index);
                continue;
            };
            let use_of_it = self.shared_use(owner, index)?;
            let binding = match self.lets.of.get(&owner) {
                Some(&(binding, _)) => binding,
                None => self.bind(owner, &key),
            };
            self.lets.of.insert(index, (binding, use_of_it));
        }
        Ok(())
    }

    /// Returns whether the second node is a transposed use of the first one, and refuses nodes that only share a part.
    fn shared_use(&self, owner: usize, index: usize) -> Result<bool, Refusal> {
        let graph = self.flow.units.graph;
        match (self.flow.nodes[owner], self.flow.nodes[index]) {
            (Node::Layer(a), Node::Layer(b)) => {
                let (a, b) = (&graph.layers[a], &graph.layers[b]);
                let is_equal = a.kind == b.kind && a.arguments == b.arguments && a.options == b.options;
                if is_equal && a.flags == b.flags && a.keys == b.keys {
                    return Ok(false);
                }
                match (a.kind, b.kind) {
                    ("Embedding" | "Linear", "Tied") => Ok(true),
                    ("Embedding" | "Linear", "Linear") if !b.flags.contains(&"transposed") => Ok(true),
                    _ => Err(Refusal::shared(a, b)),
                }
            }
            (Node::Unit(_), Node::Unit(_)) => Ok(false),
            _ => Err(Refusal(format!("node {index} shares parameters with a module of another kind"))),
        }
    }

    /// Declares a `let` for a node.
    fn bind(&mut self, owner: usize, key: &str) -> usize {
        let wanted = match self.flow.nodes[owner] {
            Node::Unit(_) => key,
            Node::Layer(_) => key.rsplit_once('.').map_or(key, |(path, _)| path),
        };
        let segments = wanted.split('.').rev();
        let name = segments.map(identifier).find(|name| !name.is_empty());
        let name = self.lets.names.add(name.unwrap_or_else(|| "shared".into()));
        let element = match self.flow.nodes[owner] {
            Node::Unit(unit) => {
                Element::Call(Box::new(call(unit, &self.flow.units.all[unit], &self.unit.path, Vec::new())))
            }
            Node::Layer(layer) => {
                let layer = &self.flow.units.graph.layers[layer];
                Element::Layer(Box::new(placed(layer, None, &self.unit.path)))
            }
        };
        self.lets.all.push((name, element));
        let binding = self.lets.all.len() - 1;
        self.lets.of.insert(owner, (binding, false));
        binding
    }
}

fn call(index: usize, unit: &Unit, around: &str, arguments: Vec<Argument>) -> Call {
    Call { function: index, arguments, path: relative(&unit.path, around), segment: String::new(), printed: None }
}

/// Returns a path as it is seen from a module.
fn relative(path: &str, around: &str) -> String {
    match path.strip_prefix(around) {
        Some(rest) if !around.is_empty() => rest.trim_start_matches('.').to_string(),
        _ => path.to_string(),
    }
}

fn placed(layer: &Layer, branches: Option<Vec<Vec<Element>>>, around: &str) -> Placed {
    let options = layer.options.iter().map(|(name, value)| (*name, Value::from(value.clone())));
    let flags = layer.flags.iter().map(|flag| (*flag, Value::Literal(Literal::Bool(true))));
    let name = match Graph::place(layer) {
        None => Name::None,
        Some((path, false)) => Name::Path(relative(&path, around)),
        Some((path, true)) => Name::Parameter(relative(&path, around)),
    };
    Placed {
        kind: layer.kind,
        arguments: layer.arguments.iter().cloned().map(Value::from).collect(),
        options: options.chain(flags).collect(),
        branches,
        name,
        printed: None,
    }
}

/// Returns `Tied` for a product with the weight of another layer.
fn tied(layer: &Layer, around: &str) -> Placed {
    let bias = layer.keys.iter().find(|(name, _)| *name == "bias");
    let path = bias.map(|(_, key)| key.rsplit_once('.').map_or("", |(path, _)| path));
    let is_true = Value::Literal(Literal::Bool(true));
    Placed {
        kind: "Tied",
        arguments: Vec::new(),
        options: bias.map(|_| ("bias", is_true)).into_iter().collect(),
        branches: None,
        name: path.map_or(Name::None, |path| Name::Path(relative(path, around))),
        printed: None,
    }
}

/// The values that are no taps.
struct References<'v> {
    inputs: &'v [ValueId],
    blocks: &'v [ValueId],
}

impl References<'_> {
    /// Numbers the taps that are read, removes the others, and finds names for them.
    fn resolve(&self, body: &mut Body, units: &Units<'_>, unit: &Unit) {
        let mut read: HashSet<ValueId> = HashSet::new();
        visit(&body.elements, &mut |element| {
            if let Element::From(value) = element {
                read.insert(*value);
            }
        });
        remove_unread(&mut body.elements, &read);
        let mut numbers: HashMap<ValueId, usize> = HashMap::new();
        let mut names = Names::default();
        let makers: HashMap<ValueId, Node> = unit.nodes.iter().map(|&node| (units.output(node), node)).collect();
        visit_mut(&mut body.elements, &mut |element| {
            if let Element::Tap(value) = element {
                let wanted = super::names::of_value(units, unit, makers.get(value).copied());
                numbers.insert(*value, body.taps.len());
                *value = body.taps.len();
                body.taps.push(names.add(wanted));
            }
        });
        visit_mut(&mut body.elements, &mut |element| {
            let Element::From(value) = element else { return };
            let place = |values: &[ValueId]| values.iter().position(|other| other == value);
            if let Some(input) = place(self.inputs) {
                *element = Element::Input(input);
            } else if let Some(block) = place(self.blocks) {
                *element = Element::Block(block);
            } else if let Some(number) = numbers.get(value) {
                *value = *number;
            }
        });
    }
}

fn remove_unread(list: &mut Vec<Element>, read: &HashSet<ValueId>) {
    list.retain(|element| !matches!(element, Element::Tap(value) if !read.contains(value)));
    for element in list {
        for inner in element.lists_mut() {
            remove_unread(inner, read);
        }
    }
}
