//! The text of each stage of lowering. Whoever changes a stage sees here what it does to a network.

use super::common::{chain, numbers, training};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Sizes, Stage, lower, lower_for, stages};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::train::Offload;
use gpumem_core::{Precision, Update};

/// Returns a network whose second part is a group that is recomputed, if `is_marked`.
fn network(is_marked: bool) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[1024])).unwrap();
    let value = chain(&mut graph, input, "Linear(1024, bias = false) | Tanh");
    let first = graph.nodes.len();
    let value = chain(&mut graph, value, "Linear(1024, bias = false) | Relu | Dropout");
    if is_marked {
        graph.groups.push([first, graph.nodes.len()]);
    }
    let output = chain(
        &mut graph,
        value,
        "LayerNorm | Linear(1024, bias = false) | Tanh | Linear(1024, bias = false) | Tanh | Linear(10)",
    );
    (graph, output)
}

/// Returns the options of a step whose activations are parked, with updates at its end.
fn parking() -> Options<'static> {
    let mut training = training(1).training.unwrap();
    training.descent.offload = Offload::Activations;
    training.update = Update::Separate;
    Options { training: Some(training) }
}

fn last(stages: &[Stage]) -> String {
    stages.last().unwrap().to_string()
}

/// A step with everything that a schedule does: a segment that is recomputed, and an activation in host memory.
#[test]
fn each_stage_of_a_step_as_text() {
    let (graph, output) = network(true);
    let stages = stages(&graph, &[output], &parking(), None).unwrap();
    let names: Vec<&str> = stages.iter().map(|stage| stage.name).collect();
    assert_eq!(names, ["rewrite", "differentiate", "schedule", "emit"]);
    for stage in &stages {
        insta::assert_snapshot!(format!("stage_{}", stage.name), stage);
    }
    let program = last(&stages);
    assert!(program.contains(" again ") && program.contains(" to host "), "{program}");
}

/// The texts are those of what [`lower`] and [`lower_for`] make.
#[test]
fn the_last_stage_is_the_program() {
    for (is_marked, options) in [(true, parking()), (false, parking()), (false, Options::default())] {
        let (graph, output) = network(is_marked);
        let program = lower(&graph, &[output], &options).unwrap();
        assert_eq!(last(&stages(&graph, &[output], &options, None).unwrap()), program.to_string());
        let sizes = Sizes::new(256, Precision::F32, Workspaces::UNLIMITED);
        let program = lower_for(&graph, &[output], &options, &sizes).unwrap();
        assert_eq!(last(&stages(&graph, &[output], &options, Some(&sizes)).unwrap()), program.to_string());
    }
}
