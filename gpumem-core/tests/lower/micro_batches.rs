//! Steps whose batch is split: sums of gradients, and what losses divide by.

use crate::common::{again, chain, layer, numbers, plan, training};
use gpumem_core::graph::Graph;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::program::loss::LossOptions;
use gpumem_core::program::{Action, Class, Operation, Program, Slot};
use gpumem_core::train::Descent;
use gpumem_core::{Half, Precision, Role};

/// Beside master copies a part's gradient is added to a sum in f32 as soon as it is complete, and dies there; that of parameters which are f32
/// themselves, or in which all is of 16 bits, is the sum itself.
#[test]
fn gradients_of_parts_add_up_in_f32() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[40])).unwrap();
    let first = layer(&mut graph, input, "Linear(40)");
    let second = again(&mut graph, first, "Linear(40)", 0);
    let output = chain(&mut graph, second, "LayerNorm | Linear(3)");
    let with = |precision: Precision, micro_batches| {
        let mut training = training(1).training.unwrap();
        training.descent = Descent { micro_batches, ..Descent::PLAIN }.at(precision);
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        assert_eq!(Program::decode(&program.encode()).as_ref(), Some(&program));
        let budget = plan(&program, 4 * micro_batches, precision).budget;
        (program, budget[Line::Gradients], budget[Line::Weights])
    };
    let (program, gradients, weights) = with(Precision::Mixed(Half::Bf16), 4);
    let norm = 80 * 4;
    assert_eq!(gradients, 2 * (weights - norm) + norm);
    let collects: Vec<usize> =
        (0..program.operations.len()).filter(|&at| program.operations[at].action == Action::Collect).collect();
    assert_eq!(collects.len(), 4, "{program}");
    for at in collects {
        assert!(at < program.repeated());
        let [part, sum] =
            [Slot::Gradient, Slot::ParameterGradient].map(|slot| program.operations[at].read(slot).unwrap());
        let [part, sum] = [part, sum].map(|id| program.tensor(id));
        assert_eq!((part.class, part.role, part.last), (Class::Transient, Role::Weight, at as u32));
        assert_eq!((sum.class, sum.role, sum.shape), (Class::Gradient, Role::Statistic, part.shape));
    }
    let ends = program.operations.iter().filter(|operation| operation.action == Action::Update);
    assert!(
        ends.clone()
            .all(|update| program.tensor(update.read(Slot::ParameterGradient).unwrap()).class == Class::Gradient)
    );
    assert_eq!(ends.count(), 6);
    for (precision, parts) in [(Precision::F32, 4), (Precision::Bf16, 4), (Precision::Mixed(Half::Bf16), 1)] {
        let (program, gradients, weights) = with(precision, parts);
        assert!(!program.operations.iter().any(|operation| operation.action == Action::Collect));
        assert_eq!(gradients, if parts > 1 { weights } else { 0 });
    }
}

/// What the terms of a part are divided by is handed in behind all targets, for each sample; a whole batch finds it out itself.
#[test]
fn what_targets_come_to_is_given_to_parts() {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[6])).unwrap();
    let middle = chain(&mut graph, input, "Linear(5) | Tanh");
    let output = chain(&mut graph, middle, "Linear(4)");
    let counted = LossOptions { ignored: Some(3), ..LossOptions::DEFAULT };
    let of_middle = Term { from: Some(middle), target: 1, ..Term::MSE };
    let loss = [Term { options: counted, weight: 0.5, ..Term::CROSS_ENTROPY }, of_middle];
    let with = |micro_batches| {
        let descent = Descent { micro_batches, ..Descent::PLAIN };
        let training = Training { loss: &loss, descent, ..training(1).training.unwrap() };
        lower(&graph, &[output], &Options { training: Some(training) }).unwrap()
    };
    for (parts, expected) in [(1, &["target", "target1"][..]), (4, &["target", "target1", "divisor0"])] {
        let program = with(parts);
        let targets: Vec<&str> = program.of_class(Class::Target).map(|id| &*program.tensor(id).name).collect();
        assert_eq!(targets, expected);
        let losses: Vec<&Operation> =
            program.operations.iter().filter(|operation| matches!(operation.action, Action::Loss(_))).collect();
        let weights: Vec<f64> = losses
            .iter()
            .map(|operation| match &operation.action {
                Action::Loss(criterion) => criterion.weight,
                _ => unreachable!(),
            })
            .collect();
        // Only the mean of squares is that of the means of the parts.
        assert_eq!(weights, [0.5, 1.0 / parts as f64]);
        let given = losses[0].read(Slot::Saved(0)).map(|id| program.tensor(id));
        assert_eq!(
            given.map(|it| (it.class, it.role, it.batched)),
            (parts > 1).then_some((Class::Target, Role::Statistic, true))
        );
        assert_eq!(losses[0].written(Slot::Saved(0)).is_some(), parts == 1);
    }
}
