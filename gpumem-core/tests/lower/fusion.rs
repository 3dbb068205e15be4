//! Fusion groups of lowered programs, and operations that are nearly one.

use crate::common::{chain, join, layer, numbers};
use crate::{network, train};
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Blueprint, Sizes, Steps, Term};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::functions::Function;
use gpumem_core::program::fusion::{Group, GroupKind};
use gpumem_core::program::{Action, Op, Operation, Pass, Program, Slot};
use gpumem_core::train::{ConvNorm, Descent};
use gpumem_core::{Checkpoint, Precision, Update};

/// All groups, those within others included, but for updates.
fn groups(operations: &[Operation]) -> Vec<Group> {
    let all = (0..operations.len()).filter_map(|first| Group::at(operations, first));
    all.filter(|group| group.kind != GroupKind::Updates).collect()
}

/// True if the group is none any more once `change` has changed its first or its last operation.
fn depends_on(operations: &[Operation], group: Group, change: impl Fn(&mut Operation, &mut Operation)) -> bool {
    let mut operations = operations.to_vec();
    let (before, last) = operations.split_at_mut(group.last());
    change(&mut before[group.first], &mut last[0]);
    Group::at(&operations, group.first) != Some(group)
}

/// Lets an operation read another tensor as `slot`.
fn read_other(operation: &mut Operation, slot: Slot) {
    operation.reads.iter_mut().filter(|operand| operand.slot == slot).for_each(|operand| operand.tensor += 1);
}

#[test]
fn a_gradient_goes_from_an_activation_to_the_layer_before_it() {
    let cases = [
        ("Conv2d(4, 3) | BatchNorm2d | Sigmoid | Flatten | Linear(3)", GroupKind::BatchNormGradient),
        ("Conv2d(4, 3) | MaxPool2d(2) | Tanh | Flatten | Linear(3)", GroupKind::MaxPoolGradient),
    ];
    for (text, kind) in cases {
        let (graph, output) = network(&[3, 8, 8], text);
        let operations = train(&graph, output, 1).operations;
        let found = groups(&operations);
        let &[group @ Group { count: 2, .. }] = &found[..] else { panic!("{text}: {found:?}") };
        assert_eq!(group.kind, kind, "{text}");
        assert!(matches!(operations[group.first].backward(), Some(Op::Pointwise(_))));
        assert!(depends_on(&operations, group, |first, _| first.accumulate = true));
        assert!(depends_on(&operations, group, |_, last| read_other(last, Slot::Gradient)));
        assert!(!depends_on(&operations, group, |first, _| read_other(first, Slot::Gradient)));
        // Only a norm computes the slope from its input.
        let without_input = depends_on(&operations, group, |_, last| last.reads.retain(|it| it.slot != Slot::Input(0)));
        assert_eq!(without_input, kind == GroupKind::BatchNormGradient);
    }
}

/// Bottlenecks of 64 channels, which recompute outputs of norms.
fn bottlenecks() -> Program {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[3, 16, 16])).unwrap();
    let mut x = chain(&mut graph, input, "Conv2d(64, 3, padding = 1, bias = false) | BatchNorm2d | Relu");
    for _ in 0..3 {
        let inner = "Conv2d(16, 1, bias = false) | BatchNorm2d | Relu | Conv2d(16, 3, padding = 1, bias = false) | BatchNorm2d | \
                     Relu | Conv2d(64, 1, bias = false) | BatchNorm2d";
        let made = chain(&mut graph, x, inner);
        let sum = join(&mut graph, &[made, x], "Add");
        x = layer(&mut graph, sum, "Relu");
    }
    let output = chain(&mut graph, x, "GlobalAvgPool | Linear(4)");
    let (loss, update, checkpoint, descent) = (vec![Term::MSE], Update::Fused, Checkpoint::Norms, Descent::PLAIN);
    let training =
        Some(Steps { loss, moments: 1, update, checkpoint, descent, conv_norm: ConvNorm::Fused, ordered_at: None });
    let blueprint = Blueprint { graph, outputs: vec![output], training, cached: None, parts: Default::default() };
    blueprint.training_for(&Sizes::new(6, Precision::Bf16, Workspaces::UNLIMITED)).unwrap().unwrap()
}

#[test]
fn recomputed_outputs_are_groups_with_the_gradients_that_read_them() {
    let operations = bottlenecks().operations;
    let found = groups(&operations);
    let count = |kind: GroupKind| found.iter().filter(|group| group.kind == kind).count();
    let all = [GroupKind::ConvNormGradient, GroupKind::RecomputedOutput, GroupKind::RecomputedInput];
    assert_eq!(all.map(count), [2, 4, 3], "{found:?}");
    for &group in &found {
        let is_again = |at: usize| matches!(operations[at].action, Action::Run { pass: Pass::Again, .. });
        assert_eq!(is_again(group.first), group.kind != GroupKind::ConvNormGradient, "{group:?}");
        match group.kind {
            GroupKind::ConvNormGradient => {
                assert!(depends_on(&operations, group, |first, _| match &mut first.action {
                    Action::Run { op: Op::Pointwise(op), .. } => op.function = Function::Sigmoid,
                    other => panic!("{other:?}"),
                }));
            }
            GroupKind::RecomputedOutput => {
                assert!(depends_on(&operations, group, |_, last| read_other(last, Slot::Saved(0))));
            }
            _ => assert!(depends_on(&operations, group, |_, last| read_other(last, Slot::Input(0)))),
        }
    }
}

#[test]
fn updates_that_follow_each_other_are_a_group() {
    let (graph, output) = network(&[4], "Linear(5) | Linear(3)");
    let mut operations = train(&graph, output, 1).operations;
    let is_update = |operation: &Operation| operation.action == Action::Update;
    let first = operations.iter().position(is_update).unwrap();
    // The weight and the bias of the second layer, whose gradients do not wait for those of the first.
    assert_eq!(Group::at(&operations, first), Some(Group { first, count: 2, kind: GroupKind::Updates }));
    assert_eq!(operations.iter().filter(|operation| is_update(operation)).count(), 4);
    operations.insert(first + 1, operations[0].clone());
    assert_eq!(Group::at(&operations, first), Some(Group { first, count: 1, kind: GroupKind::Updates }));
}
