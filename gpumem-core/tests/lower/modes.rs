//! Frozen uses, detached values and `eval`: what a step computes and keeps for them.

use super::common::{again, chain, in_eval, join, layer, numbers, training};
use super::{actions, infer, network, train};
use gpumem_core::graph::{Graph, NodeId, Source};
use gpumem_core::layers::{Entry, Use, Written};
use gpumem_core::lower::{LowerError, lower};
use gpumem_core::program::ops::BatchNorm;
use gpumem_core::program::{Class, Op, Operation, Program, Slot};

/// A layer that is frozen in this use, with the parameters of a row, if that is given.
fn frozen(graph: &mut Graph, input: NodeId, name: &str, written: &[Written], owner: Option<usize>) -> NodeId {
    let (entry, used) = (Entry::find(name).unwrap(), Use { frozen: true, ..Use::of(owner) });
    let path = format!("frozen{}", graph.rows.len());
    let built = graph.layer_as(Default::default(), used, &entry, written, &[input], path);
    assert!(built.mistakes.is_empty(), "{:?}", built.mistakes);
    built.value.unwrap()
}

fn backward(program: &Program, is: impl Fn(&Op) -> bool) -> Vec<&Operation> {
    program.operations.iter().filter(|operation| operation.backward().is_some_and(&is)).collect()
}

#[test]
fn a_frozen_use_has_a_gradient_of_its_input_alone() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[8])).unwrap();
    let first = chain(&mut graph, input, "Linear(8, bias = false) | Linear(8) | Tanh");
    let bare = [Written::positional(gpumem_core::layers::arguments::Argument::Integer(8))];
    let output = frozen(&mut graph, first, "Linear", &bare, Some(1));
    let program = train(&graph, output, 1);
    let products = backward(&program, |op| matches!(op, Op::Product(_)));
    let writes = |operation: &&&Operation| {
        let slots = operation.writes.iter().map(|operand| operand.slot);
        slots.filter(|slot| matches!(slot, Slot::InputGradient(_))).collect::<Vec<_>>()
    };
    let of_frozen: Vec<_> = products.iter().filter(|operation| operation.row == 3).collect();
    assert_eq!(of_frozen.iter().map(writes).collect::<Vec<_>>(), [[Slot::InputGradient(0)]], "{program}");
    // The weight is read before it changes.
    let updates = program.operations.iter().position(|operation| {
        operation.written(Slot::Parameter).is_some_and(|id| program.tensor(id).name == "linear1.weight")
    });
    let last = program.operations.iter().rposition(|operation| {
        operation.backward().is_some()
            && operation.reads.iter().any(|operand| program.tensor(operand.tensor).name == "linear1.weight")
    });
    assert!(last < updates && updates.is_some(), "{program}");
    // Both uses read one parameter, which is trained and has a state.
    let named = |class: Class| program.of_class(class).map(|id| program.tensor(id).name.as_str()).collect::<Vec<_>>();
    assert_eq!(named(Class::Parameter), ["linear0.weight", "linear1.weight", "linear1.bias"]);
    assert_eq!(named(Class::Moment).len(), 3);
    assert_eq!(graph.frozen_parameters(), [false, false, false]);
}

#[test]
fn what_lies_before_detach_is_not_trained() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[8])).unwrap();
    let before = chain(&mut graph, input, "Linear(8) | Tanh");
    let stopped = graph.detach(before);
    let output = layer(&mut graph, stopped, "Linear(8)");
    let program = train(&graph, output, 1);
    let trained: Vec<&str> =
        program.tensors.iter().filter(|tensor| tensor.trained).map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(trained, ["linear2.weight", "linear2.bias"]);
    assert_eq!(backward(&program, |_| true).len(), 1, "{program}");
    // The value is the other's memory under another name.
    assert_eq!(actions(&program).iter().filter(|action| action.contains("Product")).count(), 3, "{program}");
    let both = join(&mut graph, &[before, stopped], "Add");
    let program = train(&graph, both, 1);
    assert_eq!(program.tensors.iter().filter(|tensor| tensor.trained).count(), 2, "{program}");
    let nothing = graph.detach(output);
    let refused = lower(&graph, &[nothing], &training(1)).unwrap_err();
    let message = "the loss depends on no parameter that is trained; remove a `detach`, take `freeze` off a layer, or use `const INFER`";
    assert_eq!(refused, LowerError { row: None, message: message.into() });
    // Without training it is a name.
    assert_eq!(infer(&graph, nothing).operations.len(), infer(&graph, output).operations.len());
}

fn norms(program: &Program) -> Vec<&BatchNorm> {
    let all = program.operations.iter().filter_map(|operation| match operation.forward() {
        Some(Op::BatchNorm(norm)) => Some(norm),
        _ => None,
    });
    all.collect()
}

#[test]
fn a_normalisation_at_rest_keeps_what_its_gradients_read() {
    let (mut graph, output) = network(&[2, 6, 6], "Conv2d(4, 3) | BatchNorm2d | Conv2d(3, 1)");
    in_eval(&mut graph);
    let norm = |program: &Program, is_frozen: bool| {
        let all = backward(program, |op| matches!(op, Op::BatchNorm(_)));
        let [operation] = all[..] else { panic!("{program}") };
        let reads = |slot| operation.read(slot).is_some();
        assert!(reads(Slot::Saved(0)) && reads(Slot::Input(1)), "{program}");
        assert_eq!(reads(Slot::Input(0)), !is_frozen, "{program}");
        assert_eq!(operation.written(Slot::Workspace).is_some(), !is_frozen, "{program}");
        let forward = program.operations.iter().find(|it| matches!(it.forward(), Some(Op::BatchNorm(_)))).unwrap();
        assert!(forward.read(Slot::Buffer(0)).is_some() && forward.written(Slot::Buffer(0)).is_none(), "{program}");
        assert!(forward.written(Slot::Saved(0)).is_some() && forward.written(Slot::Workspace).is_none(), "{program}");
    };
    norm(&train(&graph, output, 1), false);
    graph.freeze(1);
    norm(&train(&graph, output, 1), true);
    let trained = train(&graph, output, 1);
    assert!(norms(&trained).iter().all(|norm| norm.eval));
    // Without training every normalisation uses running statistics. None is marked as `eval` then, so that fused passes match.
    assert!(norms(&infer(&graph, output)).iter().all(|norm| !norm.eval));
    assert!(norms(&trained.evaluation().unwrap().program).iter().all(|norm| !norm.eval));
    assert_eq!(trained.normalizes_single(), None);
}

/// One value a channel has no variance, which matters to those that look at the batch.
#[test]
fn one_value_is_enough_at_rest() {
    let (mut graph, output) = network(&[4], "Linear(4) | BatchNorm1d | Linear(4)");
    assert!(train(&graph, output, 1).normalizes_single().is_some());
    in_eval(&mut graph);
    assert_eq!(train(&graph, output, 1).normalizes_single(), None);
}

/// A weight that is made of parameters is shared between uses that are both frozen, or both not.
#[test]
fn a_reparametrized_weight_is_made_for_frozen_uses_and_for_others() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[8])).unwrap();
    let text = "Linear(8, weight_norm = true)";
    let written = super::common::parse(text).1;
    let first = layer(&mut graph, input, text);
    let second = frozen(&mut graph, first, "Linear", &written, Some(0));
    let third = again(&mut graph, second, text, 0);
    let output = frozen(&mut graph, third, "Linear", &written, Some(0));
    let made = |node: &&gpumem_core::graph::Node| matches!(&node.source, Source::Op { op: Op::Reparametrize(_), .. });
    assert_eq!(graph.nodes.iter().filter(made).count(), 2);
    assert_eq!(backward(&train(&graph, output, 1), |op| matches!(op, Op::Reparametrize(_))).len(), 1);
}
