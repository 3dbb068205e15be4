//! Builds the graph of lifted layers with the language's own layers, and runs it on the CPU.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod check;
pub mod recipe;
pub mod run;

use gpumem_core::graph::{Graph, NodeId, RowId, Type};
use gpumem_core::layers::arguments::Argument;
use gpumem_core::layers::recovery::Guess;
use gpumem_core::layers::{Entry, Tie, Use, Written};
use gpumem_core::shape::Shape;
use gpumem_import::batch::Batch;
use gpumem_import::lift::layer::Change;
use gpumem_import::lift::{Layer, Lifted, Literal};
use gpumem_import::model::{Model, ValueId};
use std::collections::HashMap;

/// The graph of a lifted model.
pub struct Network {
    pub graph: Graph,
    pub inputs: Vec<NodeId>,
    pub outputs: Vec<NodeId>,
    /// The key of each parameter and running statistic, by its name in the graph.
    pub keys: HashMap<String, String>,
    /// The changes of tensors on their way to parameters, by the names of these.
    pub changes: HashMap<String, Change>,
}

fn argument(literal: &Literal) -> Argument {
    match literal {
        Literal::Int(number) => match u64::try_from(*number) {
            Ok(number) => Argument::Integer(number),
            Err(_) => Argument::Float(*number as f64),
        },
        Literal::Float(number) => Argument::Float(*number),
        Literal::Bool(flag) => Argument::Flag(*flag),
        Literal::Text(text) => Argument::Text(text.clone()),
        Literal::Word(word) => {
            let numbers = word.trim_matches(['[', ']']).split(", ").map(|number| number.parse().expect("a number"));
            let numbers: Vec<f64> = numbers.collect();
            Argument::Table(vec![numbers.len() as u64], numbers)
        }
        Literal::Tuple(all) => {
            let numbers: Vec<f64> = all
                .iter()
                .map(|literal| match literal {
                    Literal::Int(number) => *number as f64,
                    Literal::Float(number) => *number,
                    other => panic!("{other} in a tuple"),
                })
                .collect();
            match all[..] {
                [Literal::Int(a @ 0..), Literal::Int(b @ 0..)] => Argument::Pair([a as u64, b as u64]),
                _ => Argument::Numbers(numbers),
            }
        }
    }
}

fn written(layer: &Layer) -> Vec<Written> {
    let positional = layer.arguments.iter().map(|literal| Written::positional(argument(literal)));
    let options = layer.options.iter().map(|(name, literal)| Written::named(*name, argument(literal)));
    // Entries of layers do not know `freeze`, which is a scope of the language.
    let flags =
        layer.flags.iter().filter(|name| **name != "freeze").map(|name| Written::named(*name, Argument::Flag(true)));
    positional.chain(options).chain(flags).collect()
}

/// Returns the type of a value for one sample.
fn type_of(model: &Model, batch: &Batch, value: ValueId) -> Type {
    let mut shape = batch.sample(value, model);
    if shape.is_empty() {
        shape.push(1);
    }
    let shape = Shape::new(&shape);
    if model.values[value].dtype.is_float() { Type::numbers(shape) } else { Type::indices(shape) }
}

/// Returns the type of an input: tokens have one axis.
fn input_type(model: &Model, batch: &Batch, value: ValueId) -> Type {
    let own = type_of(model, batch, value);
    match model.values[value].dtype.is_float() {
        true => own,
        false => Type::indices(Shape::new(&[own.shape.dims().iter().product()])),
    }
}

/// Builds a graph. Panics at the first layer that the language refuses, and at outputs of other shapes than the model's.
pub fn network(model: &Model, batch: &Batch, lifted: &Lifted) -> Result<Network, String> {
    let mut graph = Graph::default();
    let mut nodes: HashMap<ValueId, NodeId> = HashMap::new();
    let mut owners: HashMap<String, RowId> = HashMap::new();
    let (mut keys, mut changes) = (HashMap::new(), HashMap::new());
    let mut inputs = Vec::new();
    for &input in model.inputs.iter().chain(&lifted.noise) {
        let node = graph.input(input_type(model, batch, input)).map_err(|error| error.to_string())?;
        nodes.insert(input, node);
        inputs.push(node);
    }
    for (index, layer) in lifted.layers.iter().enumerate() {
        let node = build(&mut graph, layer, index, &nodes, &mut owners, &mut keys)
            .map_err(|what| format!("{what}\n    in {layer:?}"))?;
        if layer.output < model.values.len() {
            let (found, expected) = (graph.value(node).shape, type_of(model, batch, layer.output).shape);
            if found != expected {
                return Err(format!("{found} is the output, and the model's is {expected}\n    in {layer:?}"));
            }
        }
        for (name, change) in &layer.changes {
            let name = if name.is_empty() { "weight" } else { name };
            changes.insert(format!("r{index}.{name}"), change.clone());
        }
        nodes.insert(layer.output, node);
    }
    let node = |value: &ValueId| nodes.get(value).copied().ok_or(format!("output {value} is made by no layer"));
    let outputs = lifted.outputs.iter().map(node).collect::<Result<_, _>>()?;
    Ok(Network { graph, inputs, outputs, keys, changes })
}

fn build(
    graph: &mut Graph,
    layer: &Layer,
    index: usize,
    nodes: &HashMap<ValueId, NodeId>,
    owners: &mut HashMap<String, RowId>,
    keys: &mut HashMap<String, String>,
) -> Result<NodeId, String> {
    let input = |value: &ValueId| nodes.get(value).copied().ok_or(format!("input {value} is made by no layer"));
    let mut inputs: Vec<NodeId> = layer.inputs.iter().map(input).collect::<Result<_, _>>()?;
    if inputs.is_empty() {
        inputs.push(0);
    }
    let path = format!("r{index}");
    let first = layer.keys.first().map(|(_, key)| key.clone());
    let owner = first.as_ref().and_then(|key| owners.get(key)).copied();
    let is_other_kind = owner.is_some_and(|row| graph.rows[row].kind != layer.kind);
    let mut written = written(layer);
    let built = if layer.kind == "Tied" || is_other_kind {
        let entry = Entry::find("Tied").expect("the language has it");
        let tied_to = owner.ok_or("nothing has the weight that it is tied to")?;
        written = if layer.keys.len() > 1 { vec![Written::named("bias", Argument::Flag(true))] } else { Vec::new() };
        graph.layer_tied_to(
            Tie { tied_to, used: Use::default() },
            Guess::default(),
            &entry,
            &written,
            &inputs,
            path.clone(),
        )
    } else {
        let entry = Entry::find(layer.kind).ok_or(format!("no layer is called {}", layer.kind))?;
        graph.layer(&entry, &written, &inputs, path.clone(), owner)
    };
    if let Some(mistake) = built.mistakes.first() {
        return Err(mistake.to_string());
    }
    if let (None, Some(key), Some(row)) = (owner, first, built.row) {
        owners.insert(key, row);
    }
    name(graph, layer, &path, keys);
    built.value.ok_or("it has no output".into())
}

/// Finds the key of each parameter of a layer. Where a layer names one of several, the others differ in their last part.
fn name(graph: &Graph, layer: &Layer, path: &str, keys: &mut HashMap<String, String>) {
    let parameters = graph.parameters.iter().map(|parameter| &parameter.name);
    let own = parameters.chain(graph.buffers.iter().map(|buffer| &buffer.name));
    for full in own {
        let Some(part) = full.strip_prefix(&format!("{path}.")) else { continue };
        let exact = layer.keys.iter().find(|(name, _)| *name == part || name.is_empty() && part == "weight");
        let key = match (exact, layer.keys.first()) {
            (Some((_, key)), _) => Some(key.clone()),
            (None, Some((name, key))) => key.strip_suffix(name).map(|prefix| format!("{prefix}{part}")),
            (None, None) => None,
        };
        if let Some(key) = key {
            keys.insert(full.clone(), key);
        }
    }
}
