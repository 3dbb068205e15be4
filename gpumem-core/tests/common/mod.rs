//! Graphs from short texts: `layer(&mut graph, x, "Conv2d(64, 3, padding = 1)")`. And their plans.
#![allow(dead_code)]

pub mod random;

use gpumem_core::budget::budget_at;
use gpumem_core::device::Placed;
use gpumem_core::graph::{Graph, NodeId, Source};
use gpumem_core::layers::Layer;
use gpumem_core::layers::arguments::{Argument, Arguments, Mistake};
use gpumem_core::layers::rule::Value;
use gpumem_core::layout::place;
use gpumem_core::lower::{Options, Training, tables};
use gpumem_core::network::Compiled;
use gpumem_core::plan::{LiveRange, pack_slice, verify_slice};
use gpumem_core::program::{Measure, Program};
use gpumem_core::shape::Shape;
use gpumem_core::step::{Step, Workspaces};
use gpumem_core::{Precision, Role, Update};

pub fn numbers(dims: &[u64]) -> Value {
    Value::numbers(Shape::new(dims))
}

pub fn tokens(steps: u64) -> Value {
    Value { shape: Shape::new(&[steps]), index: true, batched: true }
}

fn value(text: &str) -> Argument {
    if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let pair: Vec<u64> = inner.split(';').map(|part| part.trim().parse().unwrap()).collect();
        return Argument::Pair([pair[0], pair[1]]);
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
pub fn parse(text: &str) -> (&str, Arguments) {
    let Some((name, rest)) = text.split_once('(') else { return (text, Arguments::default()) };
    let mut arguments = Arguments::default();
    for part in rest.trim_end_matches(')').split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some((option, given)) => arguments.named.push((option.trim().into(), value(given.trim()))),
            None => arguments.positional.push(value(part)),
        }
    }
    (name, arguments)
}

pub fn try_join(graph: &mut Graph, inputs: &[NodeId], text: &str) -> Result<NodeId, Mistake> {
    let (name, arguments) = parse(text);
    let values: Vec<Value> = inputs.iter().map(|&input| graph.value(input)).collect();
    let layer = Layer::resolve(name, &arguments, &values).unwrap_or_else(|| panic!("no layer is called {name}"))?;
    let path = format!("{}{}", name.to_lowercase(), graph.rows.len());
    graph.layer(layer, inputs, path, None)
}

pub fn join(graph: &mut Graph, inputs: &[NodeId], text: &str) -> NodeId {
    try_join(graph, inputs, text).unwrap_or_else(|mistake| panic!("{text} {}", mistake.message))
}

pub fn layer(graph: &mut Graph, input: NodeId, text: &str) -> NodeId {
    join(graph, &[input], text)
}

/// A chain of layers separated by `|`.
pub fn chain(graph: &mut Graph, input: NodeId, text: &str) -> NodeId {
    text.split('|').map(str::trim).fold(input, |node, text| layer(graph, node, text))
}

/// The layer that a node computes.
pub fn layer_of(graph: &Graph, node: NodeId) -> &Layer {
    match &graph.nodes[node].source {
        Source::Layer { layer, .. } => layer,
        Source::Input => panic!("an input"),
    }
}

pub fn training(moments: u64) -> Options {
    let loss = Measure::CrossEntropy;
    Options { training: Some(Training { loss, moments, update: Update::Fused, input_gradient: false }) }
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
pub fn plan(program: &Program, batch: u64, precision: Precision) -> Compiled {
    plan_within(program, batch, precision, Workspaces::UNLIMITED)
}

/// Plans a program as the macro's generated code would, with these caps on workspaces.
pub fn plan_within(program: &Program, batch: u64, precision: Precision, workspaces: Workspaces) -> Compiled {
    let tables = tables(program);
    let bytes = |[role, fixed, each, ..]: &[u64; 5]| {
        let role = Role::from_number(*role).unwrap();
        workspaces.cap(role, (fixed + each * batch) * role.bytes(precision)).next_multiple_of(256)
    };
    let ranges: Vec<LiveRange> = tables
        .transients
        .iter()
        .map(|row| LiveRange { bytes: bytes(row), first: row[3] as u32, last: row[4] as u32 })
        .collect();
    let packed = pack_slice(&ranges).unwrap();
    assert!(verify_slice(&ranges, &packed.offsets, packed.size, 256));
    let step: &'static Step = Box::leak(Box::new(Step {
        operations: tables.operations,
        transients: tables.transients.leak(),
        parameters: tables.parameters.leak(),
        buffers: tables.buffers.leak(),
        batch: tables.batch.leak(),
        moments: tables.moments,
        holds_gradients: tables.holds_gradients,
        training: tables.training,
        operation_tags: tables.operation_tags.leak(),
        transient_tags: tables.transient_tags.leak(),
        paths: &[],
        workspaces,
    }));
    let budget = budget_at(step, batch, precision).unwrap();
    Compiled { program: program.encode().leak(), step, offsets: packed.offsets.leak(), budget }
}
