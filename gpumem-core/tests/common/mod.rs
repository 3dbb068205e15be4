//! Graphs from short texts: `layer(&mut graph, x, "Conv2d(64, 3, padding = 1)")`. And their plans.
#![allow(dead_code)]

pub mod own;
pub mod random;

use gpumem_core::graph::{Graph, Node, NodeId, Parameter, RowId, Source, Type};
use gpumem_core::layers::arguments::Argument;
use gpumem_core::layers::mistake::Mistake;
use gpumem_core::layers::recovery::Guess;
use gpumem_core::layers::{Built, Entry, Steps, Tie, Use, Written};
use gpumem_core::lower::{Options, Term, Training, tables};
use gpumem_core::memory::Compiled;
use gpumem_core::memory::budget::pack_at;
use gpumem_core::memory::levels::Level;
use gpumem_core::memory::place::Placed;
use gpumem_core::memory::place::place;
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::functions::Function;
use gpumem_core::program::ops::Seen;
use gpumem_core::program::{Init, Op, Program};
use gpumem_core::shape::Shape;
use gpumem_core::{Precision, Role, Update};

pub fn numbers(dims: &[u64]) -> Type {
    Type::numbers(Shape::new(dims))
}

pub fn images(dims: &[u64]) -> Type {
    Type::bytes(Shape::new(dims))
}

pub fn tokens(steps: u64) -> Type {
    Type::indices(Shape::new(&[steps]))
}

/// What arrives, as `3x4x5`, `tokens 8` or `images 3x8x8`.
fn arriving(input: &str) -> Type {
    let dims = |text: &str| text.split('x').map(|dim| dim.parse().unwrap()).collect::<Vec<u64>>();
    match input.split_once(' ') {
        Some(("tokens", steps)) => Type::indices(Shape::new(&dims(steps))),
        Some((_, image)) => images(&dims(image)),
        None => numbers(&dims(input)),
    }
}

/// Inputs as [`arriving`] reads them, with commas between them.
pub fn inputs(graph: &mut Graph, shapes: &str) -> Vec<NodeId> {
    shapes.split(',').map(|shape| graph.input(arriving(shape.trim())).unwrap()).collect()
}

/// A number that is learned, and the same for all samples. Its layer is the graph's first.
pub fn learned(graph: &mut Graph, name: &str) -> NodeId {
    let shape = Shape::new(&[1]);
    let value = Type { batched: false, ..Type::numbers(shape) };
    let (role, init) = (Role::Weight, Init::Constant(0.0));
    graph.parameters.push(Parameter { name: name.into(), row: 0, shape, role, init });
    let source = Source::Parameter(graph.parameters.len() - 1);
    graph.nodes.push(Node { value, source, row: 0, detached: false });
    graph.nodes.len() - 1
}

fn value(text: &str) -> Argument {
    if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let parts = || inner.split(';').map(str::trim);
        let pair: Option<Vec<u64>> = parts().map(|part| part.parse().ok()).collect();
        return match pair.as_deref() {
            Some(&[height, width]) => Argument::Pair([height, width]),
            _ => Argument::Numbers(parts().map(|part| part.parse().unwrap()).collect()),
        };
    }
    if let Some(inner) = text.strip_prefix('"') {
        return Argument::Text(inner.trim_end_matches('"').into());
    }
    match text {
        "true" => Argument::Flag(true),
        "false" => Argument::Flag(false),
        _ if text.parse::<u64>().is_ok() => Argument::Integer(text.parse().unwrap()),
        _ => Argument::Float(text.parse().unwrap()),
    }
}

/// Name and arguments of `Name(1, 2.5, [3; 5], option = 2)`.
pub fn parse(text: &str) -> (&str, Vec<Written>) {
    let Some((name, rest)) = text.split_once('(') else { return (text, Vec::new()) };
    let parts = rest.trim_end_matches(')').split(',').map(str::trim).filter(|part| !part.is_empty());
    let written = parts.map(|part| match part.split_once('=') {
        Some((option, given)) => Written::named(option.trim(), value(given.trim())),
        None => Written::positional(value(part)),
    });
    (name, written.collect())
}

/// A layer with the parameters of row `owner`, if that is given.
pub fn built(graph: &mut Graph, inputs: &[NodeId], text: &str, owner: Option<RowId>) -> Built {
    let (name, written) = parse(text);
    let stem = if owner.is_some() && name != "Tied" { "shared".into() } else { name.to_lowercase() };
    let path = format!("{stem}{}", graph.rows.len());
    match (Entry::find(name), owner) {
        (Some(entry), Some(row)) if name == "Tied" => graph.layer_tied_to(
            Tie { tied_to: row, used: Use::default() },
            Guess::default(),
            &entry,
            &written,
            inputs,
            path,
        ),
        (Some(entry), _) => graph.layer(&entry, &written, inputs, path, owner),
        (None, _) => own::built(graph, inputs[0], name, path, owner),
    }
}

/// The node, or the first mistake.
pub fn sound(built: Built) -> Result<NodeId, Mistake> {
    match built.mistakes.into_iter().next() {
        Some(mistake) => Err(mistake),
        None => Ok(built.value.expect("a layer without mistakes has an output")),
    }
}

pub fn try_join(graph: &mut Graph, inputs: &[NodeId], text: &str) -> Result<NodeId, Mistake> {
    sound(built(graph, inputs, text, None))
}

pub fn join(graph: &mut Graph, inputs: &[NodeId], text: &str) -> NodeId {
    try_join(graph, inputs, text).unwrap_or_else(|mistake| panic!("{text} {mistake}"))
}

pub fn layer(graph: &mut Graph, input: NodeId, text: &str) -> NodeId {
    join(graph, &[input], text)
}

/// A layer that shares the parameters of row `owner`.
pub fn again(graph: &mut Graph, input: NodeId, text: &str, owner: RowId) -> NodeId {
    sound(built(graph, &[input], text, Some(owner))).unwrap_or_else(|mistake| panic!("{text} {mistake}"))
}

/// A layer inside of these `lengths` and `segments`, the innermost one last.
pub fn try_within(graph: &mut Graph, steps: &[Steps], inputs: &[NodeId], text: &str) -> Result<NodeId, Mistake> {
    let (name, written) = parse(text);
    let path = format!("{}{}", name.to_lowercase(), graph.rows.len());
    let used = Use { steps: steps.to_vec(), ..Use::default() };
    let entry = Entry::find(name).unwrap();
    sound(graph.layer_as(Guess::default(), used, &entry, &written, inputs, path))
}

/// A join, and then a chain of layers separated by `|`, inside of these `lengths` and `segments`.
pub fn within(graph: &mut Graph, steps: &[Steps], inputs: &[NodeId], text: &str) -> NodeId {
    let (first, rest) = text.split_once('|').unwrap_or((text, ""));
    let layer = |graph: &mut Graph, inputs: &[NodeId], text: &str| {
        try_within(graph, steps, inputs, text).unwrap_or_else(|mistake| panic!("{text} {mistake}"))
    };
    let start = layer(graph, inputs, first.trim());
    let rest = rest.split('|').map(str::trim).filter(|text| !text.is_empty());
    rest.fold(start, |node, text| layer(graph, &[node], text))
}

/// Numbers that say which of `count` steps of `of` count, as one more input.
pub fn counted(graph: &mut Graph, seen: Seen, of: NodeId, count: u64) -> (NodeId, Steps) {
    let dims = if seen == Seen::Segments { &[count][..] } else { &[] };
    let node = graph.input(Type::indices(Shape::new(dims))).unwrap();
    (node, Steps::new(graph, "lengths(n, ..)", Some((seen, node)), of, count).unwrap())
}

/// A chain of layers separated by `|`.
pub fn chain(graph: &mut Graph, input: NodeId, text: &str) -> NodeId {
    text.split('|').map(str::trim).fold(input, |node, text| layer(graph, node, text))
}

/// Puts all layers into `eval`, with running statistics that are not those of a first step.
pub fn in_eval(graph: &mut Graph) {
    for node in &mut graph.nodes {
        let Source::Op { op, inputs, .. } = &mut node.source else { continue };
        match (op.clone().in_eval(), &inputs[..]) {
            (Some(resting), _) => *op = resting,
            (None, &[first, ..]) => node.source = Source::View(first),
            (None, []) => {}
        }
    }
    for buffer in &mut graph.buffers {
        buffer.init = Init::Constant(if buffer.name.ends_with("mean") { 0.3 } else { 0.6 });
    }
}

/// The operation that computes a node.
pub fn op_of(graph: &Graph, node: NodeId) -> &Op {
    match &graph.nodes[node].source {
        Source::Op { op, .. } => op,
        other => panic!("{other:?}"),
    }
}

pub fn training(moments: u64) -> Options<'static> {
    let loss = &[Term::CROSS_ENTROPY];
    Options {
        training: Some(Training {
            loss,
            moments,
            update: Update::Fused,
            skips_overflow: false,
            input_gradient: false,
            descent: gpumem_core::train::Descent::PLAIN,
        }),
    }
}

/// Largest sum of live bytes over the operations, and the bytes of everything that lives longer than a step.
pub fn bytes(program: &Program, batch: u64, precision: Precision) -> (u64, u64) {
    use gpumem_core::program::Class;
    let size = |tensor: &gpumem_core::program::Tensor| tensor.elements(batch).unwrap() * tensor.role.bytes(precision);
    let live = |at: u32| -> u64 {
        let tensors = program.transients().map(|id| program.tensor(id));
        tensors.filter(|tensor| tensor.first <= at && at <= tensor.last).map(size).sum()
    };
    let peak = (0..program.operations.len() as u32).map(live).max().unwrap();
    let lasting = program.tensors.iter().filter(|tensor| tensor.class != Class::Transient).map(size).sum();
    (peak, lasting)
}

/// Plans a program as the macro's generated code would, and places its tensors.
pub fn compile(program: &Program, batch: u64) -> Placed {
    place(&plan(program, batch, Precision::F32)).unwrap()
}

/// Plans a program as the macro's generated code would, with whole workspaces.
pub fn plan(program: &Program, batch: u64, precision: Precision) -> Compiled<'static> {
    plan_within(program, batch, precision, Workspaces::UNLIMITED)
}

/// Plans a program as the macro's generated code would, with these caps on workspaces.
pub fn plan_within(program: &Program, batch: u64, precision: Precision, workspaces: Workspaces) -> Compiled<'static> {
    // Until the process ends, as the statics of a network are.
    let tables = Box::leak(Box::new(tables(program)));
    let tables = Box::leak(Box::new(tables.as_tables().with_workspaces(workspaces)));
    let (budget, offsets) = pack_at(tables, batch, precision).unwrap();
    let offsets = offsets.leak();
    Compiled { program: program.encode().leak(), tables, offsets, budget, batch, precision, level: Level::ONLY }
}

/// The layer that is a function without arguments; `None` if it is only a part of a layer.
pub fn layer_of(function: Function) -> Option<&'static str> {
    match function {
        // Checked after an affine map, beside PyTorch's.
        Function::StepSize => None,
        Function::GeluTanh => Some("Gelu(approximate = \"tanh\")"),
        Function::EluInPlace => Some("Elu(inplace = true)"),
        Function::CeluInPlace => Some("Celu(inplace = true)"),
        Function::SeluInPlace => Some("Selu(inplace = true)"),
        _ => Some(function.name()),
    }
}
