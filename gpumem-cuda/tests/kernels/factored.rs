//! Updates by rows and columns: all ranks, groups, master copies, weights in either order, and what belongs to their launches.

use super::optimizers::{checked, network, setting_of, training};
use crate::host::harness::compile;
use crate::host::{CAPABILITY, Reference, Run, compare, compare_in, compare_programs, not_a_number, steps_of};
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, lower};
use gpumem_core::program::{Action, ChannelOrder, Class, Layout, Slot, Tensor};
use gpumem_core::train::optim::{Adafactor, Adam, Group, Optimizer};
use gpumem_core::{Half, Precision, Update};
use gpumem_cuda::Call;

/// Parameters of one, two and four axes: matrices of more rows than a strip has, of few elements, of one row and of one column.
///
/// `Softplus` has an exact slope where that is small. A row of small gradients would show how another one was rounded.
fn of_all_ranks() -> (Graph, NodeId) {
    network(
        &[2, 9, 8],
        "Conv2d(5, [3; 2]) | Tanh | Conv2d(3, [1; 3], bias = false) | BatchNorm2d | Conv2d(4, [2; 1]) | Flatten | Linear(263) | \
         Softplus | Linear(31)",
    )
}

const FACTORED: Adafactor = Adafactor { lr: 0.05, weight_decay: 0.3, ..Adafactor::DEFAULT };

#[test]
fn rows_and_columns_are_those_of_the_cpu() {
    let (graph, output) = of_all_ranks();
    let groups = &[
        Group { paths: "*.bias, *norm*", weight_decay: Some(0.0), ..Group::DEFAULT },
        Group { paths: "linear*", lr_factor: Some(0.25), ..Group::DEFAULT },
    ];
    // Every number has a say: gradients below the least, parameters below theirs, no limit.
    let others = Adafactor { lr: 0.1, beta2_decay: -0.5, eps: (Some(1e-2), 0.5), d: 40.0, ..Adafactor::DEFAULT };
    for (rule, update) in [
        (FACTORED, Update::Separate),
        (Adafactor { groups, ..FACTORED }, Update::Fused),
        (Adafactor { eps: (Some(1e-5), 1e-3), ..others }, Update::Separate),
        (others, Update::Fused),
    ] {
        let optimizer = Optimizer::Adafactor(rule);
        let training = training(&[Term::CROSS_ENTROPY], optimizer, update);
        compare(&format!("{optimizer:?}, {update:?}"), &graph, output, training, 3, optimizer, 3, 31, 1e-3);
    }
}

#[test]
fn rows_and_columns_of_sixteen_bits() {
    // What rounding leaves of a gradient shows in few layers.
    let (graph, output) = network(&[3, 36], "LayerNorm | Linear(31)");
    let groups = &[Group { paths: "linear*", lr_factor: Some(0.25), ..Group::DEFAULT }];
    for (precision, update, groups) in [
        (Precision::Bf16, Update::Separate, [].as_slice()),
        (Precision::F16, Update::Fused, groups),
        (Precision::Mixed(Half::Bf16), Update::Fused, groups),
        (Precision::Mixed(Half::F16), Update::Separate, &[]),
    ] {
        let optimizer = Optimizer::Adafactor(Adafactor { groups, eps: (Some(1e-2), 1e-3), ..FACTORED });
        let training = match precision.scales_loss() {
            true => checked(&[Term::DOT], optimizer, update),
            false => training(&[Term::DOT], optimizer, update),
        };
        let what = format!("{precision:?}, {update:?}");
        compare_in((precision, CAPABILITY), 0..1, (&what, &graph, output, training, 2, optimizer), 1, 5, 1e-2);
    }
}

/// All parameters go through six launches, of which the last one is the end of the step.
#[test]
fn rows_and_columns_are_launched_together() {
    let (graph, output) = of_all_ranks();
    let optimizer = Optimizer::Adafactor(FACTORED);
    let training = training(&[Term::MSE], optimizer, Update::Separate);
    let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 2);
    let steps = steps_of(&placed, 2, Precision::F32, optimizer);
    let is_update = |step: &&gpumem_cuda::program_calls::OperationCalls| {
        placed.program.operations[step.first].action == Action::Update
    };
    let updates: Vec<_> = steps.iter().filter(is_update).collect();
    let [step] = &updates[..] else { panic!("{updates:?}") };
    // Eleven parameters, and the end of the step.
    assert_eq!(step.count, 12);
    let launch = |call: &Call| match call {
        Call::Kernel(launch) => (launch.kernel.entry, launch.numbers[1]),
        other => panic!("{other:?}"),
    };
    let expected = [
        ("factored_rows", 0),
        ("factored_columns", 0),
        ("factored_means", 0),
        ("factored_squares", 0),
        ("factored_totals", 0),
        ("factored_update", 1),
    ];
    assert_eq!(step.calls.iter().map(launch).collect::<Vec<_>>(), expected);
}

/// Launches for all parameters count what each reads and writes.
#[test]
fn bytes_are_those_of_all_parameters() {
    let (graph, output) = network(&[6], "Linear(4)");
    let optimizer = Optimizer::Adafactor(FACTORED);
    let training = training(&[Term::MSE], optimizer, Update::Separate);
    let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 1);
    let counted = gpumem_cuda::traffic::launches(&placed, setting_of(1, optimizer)).unwrap();
    let updates = counted.iter().filter_map(|launch| match &launch.call {
        Call::Kernel(kernel) if kernel.kernel.file == "factored.cu" => Some(launch.bytes() / 4),
        _ => None,
    });
    // A matrix of four rows of six, and a vector of four: gradients, what is kept, and weights.
    let (weights, rows, columns) = (24 + 4, 4 + 4, 6);
    let all = 2 * weights + rows + columns;
    let expected = [weights + 2 * rows, weights + 2 * columns, rows, all, 0, all + weights];
    assert_eq!(updates.collect::<Vec<u64>>(), expected);
}

/// States of rows and columns are no other optimizer's, nor is it theirs. What does not train runs.
#[test]
fn states_of_another_optimizer_are_refused() {
    let (graph, output) = network(&[5], "Linear(4)");
    let (adam, adafactor) = (Optimizer::Adam(Adam::DEFAULT), Optimizer::Adafactor(Adafactor::DEFAULT));
    for (one, other) in [(adam, adafactor), (adafactor, adam)] {
        for update in [Update::Fused, Update::Separate] {
            let training = training(&[Term::MSE], one, update);
            let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 1);
            let what = "another optimizer than that of the network; name the optimizer in `TRAIN`".into();
            let refused = Error::Unsupported { device: "CUDA", what };
            assert_eq!(gpumem_cuda::program_calls::steps(&placed, setting_of(1, other)).err(), Some(refused));
        }
    }
    let placed = compile(&lower(&graph, &[output], &Options::default()).unwrap(), 1);
    assert!(gpumem_cuda::program_calls::steps(&placed, setting_of(1, adafactor)).is_ok());
}

/// Scratch memory that is too small is found before anything runs.
#[test]
fn too_little_scratch_memory_is_an_error() {
    let (graph, output) = of_all_ranks();
    let optimizer = Optimizer::Adafactor(FACTORED);
    let training = training(&[Term::MSE], optimizer, Update::Separate);
    let mut placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 1);
    let is_update = |operation: &&gpumem_core::program::Operation| operation.action == Action::Update;
    let update = placed.program.operations.iter().find(is_update).unwrap();
    let memory = update.written(Slot::Workspace).unwrap() as usize;
    placed.program.tensors[memory].shape = gpumem_core::shape::Shape::new(&[100]);
    let found = gpumem_cuda::program_calls::steps(&placed, setting_of(1, optimizer));
    assert_eq!(found.err(), Some(Error::Damaged("updates have less scratch memory than they need")));
}

/// Weights that lie with their channels last, and with them what is as large as they are.
#[test]
fn rows_and_columns_of_weights_in_another_order() {
    const LAST: Layout = Layout { order: ChannelOrder::ChannelsLast, ..Layout::DENSE };
    let (graph, output) = network(
        &[3, 9, 8],
        "Conv2d(5, [3; 2]) | Tanh | Conv2d(4, [1; 3]) | Tanh | Conv2d(6, [2; 1]) | Tanh | Conv2d(300, 3)",
    );
    let optimizer = Optimizer::Adafactor(FACTORED);
    let plain =
        lower(&graph, &[output], &Options { training: Some(training(&[Term::MSE], optimizer, Update::Separate)) });
    let plain = plain.unwrap();
    let mut turned = plain.clone();
    for update in plain.operations.iter().filter(|operation| operation.action == Action::Update) {
        let weight = plain.tensor(update.written(Slot::Parameter).unwrap()).shape;
        for id in update.tensors().filter(|&id| weight.rank() == 4 && plain.tensor(id).shape == weight) {
            turned.tensors[id as usize].layout = LAST;
        }
    }
    let is_turned = |tensor: &&Tensor| tensor.is_turned() && tensor.class == Class::Moment;
    assert_eq!(turned.tensors.iter().filter(is_turned).count(), 2, "means that are as many as the elements");
    for (precision, tolerance) in [(Precision::F32, 1e-3), (Precision::Mixed(Half::Bf16), 2e-2)] {
        let (batch, steps, classes, reference) = (2, 2, 5, Reference::Kernels);
        let run = Run { batch, optimizer, steps, classes, tolerance, reference };
        compare_programs((precision, CAPABILITY), 0..1, "weights in another order", [&plain, &turned], run);
    }
}

/// Means of rows and columns take NaN everywhere: to all of a matrix, of whose gradient one element is.
#[test]
fn a_gradient_that_is_not_a_number() {
    // The gradient of the output is what it is compared with.
    let (graph, output) = network(&[6], "Linear(4, bias = false)");
    let optimizer = Optimizer::Adafactor(FACTORED);
    let training = training(&[Term::DOT], optimizer, Update::Separate);
    let found = not_a_number(&graph, output, training, optimizer, Class::Target);
    for (name, is_nan) in found.iter().filter(|(name, _)| name.ends_with("weight")) {
        assert!(is_nan.iter().all(|&is_nan| is_nan), "{name}: {is_nan:?}");
    }
}
